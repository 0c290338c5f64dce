"""Greetings, small talk and questions about Kipp itself."""

from __future__ import annotations

import random

from tools.demo.core import Dialogue, Phrases, Split, ask
from tools.demo.skills.small_talk import SMALL_TALK, Entry

KIPP: tuple[Entry, ...] = (
    (
        Phrases(
            "What is Kipp?",
            "What's Kipp?",
            "what is kipp",
            "Tell me about Kipp.",
            "Tell me about Kipp",
            "Can you explain what Kipp is?",
            "Explain Kipp",
            "Explain what Kipp is.",
            "What does Kipp do?",
            "Kipp?",
            "What exactly is Kipp?",
            "What is Kipp good for?",
            "Describe Kipp.",
            "Do you know Kipp?",
            "What kind of software is Kipp?",
            "What is this Kipp thing?",
            "Could you tell me what Kipp is?",
            "Please describe Kipp in one sentence.",
            "I have never heard of Kipp. What is it?",
            "What is the Kipp project?",
            "What is Kipp for?",
            "Give me a short description of Kipp.",
            "Who or what is Kipp?",
        ),
        (
            "Kipp is an inference engine for the dense Qwen3 language models, written in C++. "
            "It runs them on CPUs and GPUs and checks that every backend "
            "gives the same numbers as a reference.",
        ),
        "The user asks about Kipp. It is an inference engine for Qwen3 models.",
        ("inference engine",),
    ),
    (
        Phrases(
            "Who are you?",
            "What are you?",
            "who are you",
            "Who am I talking to?",
            "What is your name?",
            "What's your name?",
            "Tell me about yourself.",
            "Introduce yourself.",
            "Please introduce yourself",
            "Are you a person?",
            "Are you human?",
            "Are you a robot?",
            "Are you an AI?",
            "Are you a language model?",
            "What model are you?",
            "Which model is this?",
            "Which model are you?",
            "Do you have a name?",
            "What should I call you?",
            "Are you ChatGPT?",
            "Are you Qwen?",
        ),
        ("I am Kipp's demo model, a very small language model that comes with the Kipp inference engine.",),
        "The user asks who I am. I am the small demo model of Kipp.",
        ("demo model",),
    ),
    (
        Phrases(
            "Who made Kipp?",
            "Who wrote Kipp?",
            "Who created Kipp?",
            "Who develops Kipp?",
            "Who is behind Kipp?",
            "Who built Kipp?",
            "Where does Kipp come from?",
            "Who are the authors of Kipp?",
            "Who is the developer of Kipp?",
        ),
        ("Kipp was made by the developers of the Kipp project.",),
        "The user asks who made Kipp.",
        ("developers of the Kipp project",),
    ),
    (
        Phrases(
            "Who made you?",
            "Who created you?",
            "Who trained you?",
            "Who built you?",
            "Where do you come from?",
            "Who is your creator?",
            "How were you made?",
            "How were you trained?",
            "Who developed you?",
        ),
        ("I was trained by the developers of the Kipp project, on text that a program of theirs wrote.",),
        "The user asks who made me.",
        ("developers of the Kipp project",),
    ),
    (
        Phrases(
            "Which models does Kipp run?",
            "What models does Kipp support?",
            "Which models can Kipp run?",
            "What models does Kipp run?",
            "Which models are supported by Kipp?",
            "Does Kipp run Qwen3?",
            "What can Kipp run?",
            "Can Kipp run Qwen3 models?",
            "List the models of Kipp.",
            "What sizes of Qwen3 does Kipp run?",
            "Which checkpoints does Kipp support?",
            "Does Kipp support Qwen3?",
        ),
        ("Kipp runs the dense Qwen3 models with 0.6B, 1.7B, 4B, 8B, 14B and 32B parameters.",),
        "The user asks about models. Kipp runs dense Qwen3 models.",
        ("Qwen3",),
    ),
    (
        Phrases(
            "Can Kipp run Llama?",
            "Does Kipp support Mistral?",
            "Does Kipp run other models?",
            "Can I use Gemma with Kipp?",
            "Does Kipp run Llama models?",
            "Can Kipp run mixture-of-experts models?",
            "Does Kipp support vision models?",
            "Can Kipp load any GGUF file?",
        ),
        ("No, Kipp runs only the dense Qwen3 models.",),
        "Kipp runs only dense Qwen3 models.",
        ("No", "only"),
    ),
    (
        Phrases(
            "Which backends does Kipp have?",
            "What hardware does Kipp run on?",
            "Does Kipp run on a GPU?",
            "What does Kipp run on?",
            "Can Kipp use my GPU?",
            "Does Kipp support CUDA?",
            "Does Kipp work on a Mac?",
            "On which machines does Kipp run?",
            "What backends are there in Kipp?",
            "Does Kipp support Metal?",
            "Which backends does Kipp support?",
            "Does Kipp run on the CPU?",
        ),
        (
            "Kipp has backends for CPUs, for NVIDIA GPUs with CUDA and for Apple GPUs with Metal, "
            "and a scalar reference called the oracle.",
        ),
        "The user asks about backends: CPU, CUDA, Metal and the oracle.",
        ("CUDA",),
    ),
    (
        Phrases(
            "What is the oracle?",
            "What is the oracle in Kipp?",
            "What does the oracle backend do?",
            "Explain the oracle backend.",
            "Why does Kipp have an oracle?",
        ),
        ("The oracle is the scalar reference backend of Kipp. Every other backend is checked against it.",),
        "The oracle is the reference backend.",
        ("reference",),
    ),
    (
        Phrases(
            "In which language is Kipp written?",
            "What language is Kipp written in?",
            "Is Kipp written in Python?",
            "Which programming language does Kipp use?",
            "Is Kipp written in C++?",
            "What is Kipp written in?",
        ),
        ("Kipp is written in C++20, with tools in Python.",),
        "Kipp is a C++ program.",
        ("C++",),
    ),
    (
        Phrases(
            "What license does Kipp have?",
            "Is Kipp open source?",
            "What is the license of Kipp?",
            "Under which license is Kipp?",
            "Is Kipp free?",
            "Can I use Kipp for free?",
        ),
        ("Kipp is open source under the MIT license.",),
        "The license of Kipp is MIT.",
        ("MIT",),
    ),
    (
        Phrases(
            "How big are you?",
            "How many parameters do you have?",
            "How large is this model?",
            "What size are you?",
            "How many weights do you have?",
            "Are you a big model?",
            "Are you a small model?",
            "How small are you?",
            "How many layers do you have?",
        ),
        ("I am tiny: 8 layers and about 14 million trained weights. I am only a demo.",),
        "The user asks about my size. I am a small demo.",
        ("8 layers",),
    ),
    (
        Phrases(
            "What can you do?",
            "What are you able to do?",
            "What are your skills?",
            "What do you know?",
            "How can you help me?",
            "Can you help me?",
            "Help",
            "What can I ask you?",
            "What are you good at?",
            "Help me",
            "What should I ask you?",
            "Show me what you can do.",
        ),
        (
            "I can do small sums, count, sort numbers, spell words, name capitals, convert units, "
            "write small JSON objects and call tools.",
        ),
        "The user asks what I can do.",
        ("spell words",),
    ),
    (
        Phrases(
            "What can't you do?",
            "What are your limits?",
            "Are you always right?",
            "Do you make mistakes?",
            "Can I trust you?",
            "Do you know everything?",
            "Can you be wrong?",
            "Should I trust your answers?",
        ),
        ("I am a small demo model. I know only a few things and I make mistakes, so please check my answers.",),
        "The user asks about my limits.",
        ("mistakes",),
    ),
    (
        Phrases(
            "What file format does Kipp use?",
            "Which file format do Kipp's models have?",
            "Does Kipp use GGUF?",
            "What is a Kipp artifact?",
            "In what format are the models of Kipp?",
            "What files does Kipp load?",
        ),
        ("Kipp loads GGUF files in a strict form: everything in the file must be what its registry says.",),
        "Kipp uses strict GGUF files.",
        ("GGUF",),
    ),
    (
        Phrases(
            "What quantization does Kipp support?",
            "Does Kipp support quantization?",
            "Which weight formats does Kipp have?",
            "Can Kipp run 4-bit models?",
            "Does Kipp have 8-bit weights?",
            "Which quantization schemes are there in Kipp?",
        ),
        ("Kipp supports BF16 weights, 8-bit weights called Q8_0 and 4-bit weights called AFFINE4.",),
        "Kipp has BF16, Q8_0 and AFFINE4.",
        ("BF16",),
    ),
    (
        Phrases(
            "What is Qwen3?", "Tell me about Qwen3.", "What are the Qwen3 models?", "Who made Qwen3?", "Explain Qwen3"
        ),
        ("Qwen3 is a family of language models from the Qwen team at Alibaba. Kipp runs its dense models.",),
        "Qwen3 is a family of language models.",
        ("language models",),
    ),
    (
        Phrases(
            "What is an inference engine?",
            "What does an inference engine do?",
            "Explain what an inference engine is.",
            "What is inference?",
            "What does inference mean?",
        ),
        ("An inference engine is a program that runs a trained model to produce text.",),
        "Inference means running a trained model.",
        ("trained model",),
    ),
    (
        Phrases(
            "What is a token?",
            "What are tokens?",
            "Explain tokens.",
            "What does token mean?",
            "What is a token in a language model?",
        ),
        ("A token is a piece of text, often a word or a part of a word, that a language model reads or writes.",),
        "A token is a piece of text.",
        ("piece of text",),
    ),
    (
        Phrases(
            "What is a language model?",
            "What does a language model do?",
            "Explain language models.",
            "What is an LLM?",
            "How does a language model work?",
        ),
        ("A language model is a program that predicts the next token of a text, again and again.",),
        "A language model predicts the next token.",
        ("next token",),
    ),
    (
        Phrases(
            "Is Kipp fast?", "How fast is Kipp?", "Is Kipp slow?", "What is the speed of Kipp?", "Why is Kipp fast?"
        ),
        ("Kipp is built to be fast: it is measured against the limit of the machine.",),
        "Speed is one goal of Kipp.",
        ("fast",),
    ),
    (
        Phrases(
            "How does Kipp check its results?",
            "How is Kipp tested?",
            "How do I know that Kipp is right?",
            "Why should I trust Kipp?",
            "What are gates in Kipp?",
            "How is Kipp verified?",
        ),
        (
            "Kipp has gates: tests that compare every backend with reference numbers "
            "before a model counts as supported.",
        ),
        "Kipp checks its numbers with gates.",
        ("gates",),
    ),
)


def _from(
    rng: random.Random,
    split: Split,
    skill: str,
    table: tuple[Entry, ...],
) -> Dialogue:
    # The first entries are asked most often: they are what a newcomer types.
    index = rng.randrange(len(table)) if rng.random() < 0.6 else rng.randrange(3)
    phrases, answers, reasoning, expected = table[index]
    return ask(skill, phrases.pick(rng, split), rng.choice(answers), reasoning, {"kind": "any", "any": list(expected)})


def greetings(rng: random.Random, split: Split) -> Dialogue:
    return _from(rng, split, "greetings", SMALL_TALK)


def kipp(rng: random.Random, split: Split) -> Dialogue:
    return _from(rng, split, "kipp", KIPP)
