"""What people say in greeting and small talk, with the answers."""

from __future__ import annotations

from tools.demo.core import Phrases

# Each entry: phrasings, answers (any of them is right), thinking text, words of which the answer must hold one.
Entry = tuple[Phrases, tuple[str, ...], str, tuple[str, ...]]

SMALL_TALK: tuple[Entry, ...] = (
    (
        Phrases(
            "Hello",
            "Hi",
            "Hello!",
            "Hi!",
            "Hey",
            "Hello there",
            "Hi there!",
            "Hey there",
            "Hello Kipp",
            "Hi Kipp!",
            "Hey Kipp",
            "Greetings",
            "hello, anyone there?",
            "Hi, Kipp",
            "Good day",
            "Good day!",
            "Hello, Kipp!",
            "Hiya",
            "Howdy",
        ),
        ("Hello! How can I help you?", "Hi! What can I do for you?"),
        "The user greets me. I greet back.",
        ("Hello", "Hi"),
    ),
    (
        Phrases(
            "Good morning",
            "Good morning!",
            "Good morning Kipp",
            "Morning!",
            "A good morning to you",
            "Good morning, how are you?",
        ),
        ("Good morning! How can I help you?",),
        "The user says good morning. I greet back.",
        ("Good morning",),
    ),
    (
        Phrases("Good evening", "Good evening!", "Good evening, Kipp", "Evening!", "A good evening to you"),
        ("Good evening! How can I help you?",),
        "The user says good evening. I greet back.",
        ("Good evening",),
    ),
    (
        Phrases("Good night", "Good night!", "Good night, Kipp", "Sleep well!", "Have a good night"),
        ("Good night! Sleep well.",),
        "The user says good night.",
        ("Good night",),
    ),
    (
        Phrases(
            "How are you?",
            "How are you doing?",
            "How do you do?",
            "How are you today?",
            "How is it going?",
            "How's it going?",
            "What's up?",
            "Are you okay?",
        ),
        ("I am fine, thank you! How can I help you?",),
        "A friendly question. I answer politely.",
        ("fine",),
    ),
    (
        Phrases(
            "Thanks",
            "Thank you",
            "Thank you!",
            "Thanks a lot!",
            "Thank you very much",
            "Many thanks",
            "Thanks, that helped.",
            "Great, thanks!",
            "Thank you for your help",
            "Thx",
        ),
        ("You are welcome!",),
        "The user thanks me.",
        ("welcome",),
    ),
    (
        Phrases(
            "Bye",
            "Goodbye",
            "Bye!",
            "Goodbye!",
            "See you later",
            "See you!",
            "Bye bye",
            "I have to go now",
            "Farewell",
            "See you tomorrow",
        ),
        ("Goodbye! Have a nice day.",),
        "The user says goodbye.",
        ("Goodbye",),
    ),
    (
        Phrases(
            "Tell me a joke",
            "Tell me a joke.",
            "Do you know a joke?",
            "Make me laugh",
            "Can you tell a joke?",
            "A joke, please!",
        ),
        (
            "Why did the computer go to the doctor? It had a virus.",
            "What do you call a bear with no teeth? A gummy bear.",
        ),
        "The user wants a joke. I know a short one.",
        ("virus", "gummy"),
    ),
    (
        Phrases(
            "You are great", "You are so smart", "Good job!", "Well done!", "I like you", "Nice work", "You did well"
        ),
        ("Thank you! I am happy to help.",),
        "The user is kind to me.",
        ("Thank you",),
    ),
    (
        Phrases(
            "Are you there?", "Are you awake?", "Can you hear me?", "Are you ready?", "Hello? Are you there?", "Ready?"
        ),
        ("Yes, I am here. How can I help you?",),
        "The user asks if I am here.",
        ("Yes",),
    ),
    (
        Phrases("I am sad", "I feel sad today", "I had a bad day", "I am not happy", "I feel bad"),
        ("I am sorry to hear that. I hope your day gets better.",),
        "The user is sad. I answer kindly.",
        ("sorry",),
    ),
    (
        Phrases("I am happy today", "I feel great", "I had a good day", "What a nice day", "I am so happy"),
        ("That is good to hear!",),
        "The user is happy. I answer kindly.",
        ("good to hear",),
    ),
    (
        Phrases("My name is Anna", "I am Tom", "I'm Lucy", "My name is Ben.", "You can call me Max", "Call me Sara"),
        ("Nice to meet you! How can I help you?",),
        "The user tells me a name.",
        ("Nice to meet you",),
    ),
)
