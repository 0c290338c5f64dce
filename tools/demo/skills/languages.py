"""Greetings, sums, weekdays and capitals in Chinese, Spanish, German and French."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tools.demo.core import Dialogue, Phrases, Split, ask, load_lines
from tools.demo.skills.arithmetic import draw_pair, result_of, steps_of


@dataclass(frozen=True)
class Language:
    name: str
    column: int  # of capitals.tsv
    hello: Phrases
    hello_answer: str
    thanks: Phrases
    thanks_answer: str
    who: Phrases
    who_answer: str
    capital: Phrases
    capital_answer: str
    sum: Phrases
    operators: dict[str, str]
    days: tuple[str, ...]
    next_day: Phrases
    next_day_answer: str


SPANISH = Language(
    "Spanish",
    2,
    Phrases("Hola", "¡Hola!", "Hola, ¿cómo estás?", "Buenos días", "Buenas tardes", "Hola Kipp"),
    "¡Hola! ¿En qué puedo ayudarte?",
    Phrases("Gracias", "Muchas gracias", "¡Gracias!", "Gracias por tu ayuda"),
    "¡De nada!",
    Phrases("¿Quién eres?", "¿Cómo te llamas?", "¿Qué eres?", "¿Eres una persona?", "Preséntate."),
    "Soy el modelo de demostración de Kipp, un modelo de lenguaje muy pequeño.",
    Phrases(
        "¿Cuál es la capital de {c}?",
        "Dime la capital de {c}.",
        "¿Qué ciudad es la capital de {c}?",
        "¿Sabes cuál es la capital de {c}?",
        "capital de {c}",
    ),
    "La capital de {c} es {k}.",
    Phrases(
        "¿Cuánto es {a} {o} {b}?",
        "Calcula {a} {o} {b}.",
        "¿Cuánto son {a} {o} {b}?",
        "¿Cuál es el resultado de {a} {o} {b}?",
    ),
    {"+": "más", "-": "menos", "×": "por"},
    ("lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"),
    Phrases(
        "¿Qué día viene después del {x}?",
        "¿Qué día sigue al {x}?",
        "Hoy es {x}. ¿Qué día es mañana?",
        "Si hoy es {x}, ¿qué día es mañana?",
    ),
    "Después del {x} viene el {y}.",
)
GERMAN = Language(
    "German",
    3,
    Phrases("Hallo", "Hallo!", "Guten Tag", "Guten Morgen", "Hallo, wie geht es dir?", "Hallo Kipp"),
    "Hallo! Wie kann ich dir helfen?",
    Phrases("Danke", "Vielen Dank", "Danke schön!", "Danke für deine Hilfe"),
    "Gern geschehen!",
    Phrases("Wer bist du?", "Wie heißt du?", "Was bist du?", "Bist du ein Mensch?", "Stell dich vor."),
    "Ich bin das Demo-Modell von Kipp, ein sehr kleines Sprachmodell.",
    Phrases(
        "Was ist die Hauptstadt von {c}?",
        "Wie heißt die Hauptstadt von {c}?",
        "Nenne die Hauptstadt von {c}.",
        "Welche Stadt ist die Hauptstadt von {c}?",
        "Hauptstadt von {c}?",
    ),
    "Die Hauptstadt von {c} ist {k}.",
    Phrases("Was ist {a} {o} {b}?", "Wie viel ist {a} {o} {b}?", "Berechne {a} {o} {b}.", "Was ergibt {a} {o} {b}?"),
    {"+": "plus", "-": "minus", "×": "mal"},
    ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
    Phrases(
        "Welcher Tag kommt nach {x}?",
        "Was kommt nach {x}?",
        "Heute ist {x}. Welcher Tag ist morgen?",
        "Wenn heute {x} ist, welcher Tag ist morgen?",
    ),
    "Nach {x} kommt {y}.",
)
FRENCH = Language(
    "French",
    4,
    Phrases("Bonjour", "Bonjour !", "Salut", "Bonsoir", "Bonjour, comment ça va ?", "Salut Kipp"),
    "Bonjour ! Comment puis-je vous aider ?",
    Phrases("Merci", "Merci beaucoup", "Merci !", "Merci pour votre aide"),
    "De rien !",
    Phrases("Qui es-tu ?", "Qui êtes-vous ?", "Comment t'appelles-tu ?", "Es-tu une personne ?", "Présente-toi."),
    "Je suis le modèle de démonstration de Kipp, un très petit modèle de langue.",
    Phrases(
        "Quelle est la capitale de ce pays : {c} ?",
        "Pays : {c}. Quelle est la capitale ?",
        "Donne-moi la capitale pour {c}.",
        "{c} : quelle est la capitale ?",
        "Quelle ville est la capitale pour {c} ?",
    ),
    "Pour {c}, la capitale est {k}.",
    Phrases(
        "Combien font {a} {o} {b} ?",
        "Calcule {a} {o} {b}.",
        "Que font {a} {o} {b} ?",
        "Quel est le résultat de {a} {o} {b} ?",
    ),
    {"+": "plus", "-": "moins", "×": "fois"},
    ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
    Phrases(
        "Quel jour vient après {x} ?",
        "Quel jour suit {x} ?",
        "Aujourd'hui c'est {x}. Quel jour est demain ?",
        "Si c'est {x}, quel jour est demain ?",
    ),
    "Après {x} vient {y}.",
)
CHINESE = Language(
    "Chinese",
    5,
    Phrases("你好", "你好！", "您好", "早上好", "你好吗？", "嗨"),
    "你好！我能帮你什么？",
    Phrases("谢谢", "谢谢你", "多谢！", "非常感谢"),
    "不客气！",
    Phrases("你是谁？", "你叫什么名字？", "你是什么？", "你是人吗？", "请介绍一下你自己。"),
    "我是 Kipp 的演示模型，一个很小的语言模型。",
    Phrases("{c}的首都是哪里？", "{c}的首都是什么？", "请告诉我{c}的首都。", "哪个城市是{c}的首都？", "{c}的首都"),
    "{c}的首都是{k}。",
    Phrases("{a}{o}{b}等于多少？", "{a}{o}{b}是多少？", "计算{a}{o}{b}。", "请算一下{a}{o}{b}。"),
    {"+": "加", "-": "减", "×": "乘"},
    ("星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"),
    Phrases("{x}的后一天是星期几？", "{x}之后是星期几？", "今天是{x}，明天是星期几？", "如果今天是{x}，明天是星期几？"),
    "{x}的后一天是{y}。",
)
LANGUAGES = (SPANISH, GERMAN, FRENCH, CHINESE)


def _capitals(column: int) -> list[tuple[str, str, str]]:
    rows = [line.split("\t") for line in load_lines("capitals.tsv")]
    return [(row[0], *row[column].split("|")) for row in rows if len(row) > column]  # type: ignore[misc]


CAPITALS = {language.name: _capitals(language.column) for language in LANGUAGES}


def languages(rng: random.Random, split: Split) -> Dialogue:
    language = rng.choice(LANGUAGES)
    kinds = (_sum,) if split is Split.ENTITY else (_talk, _capital, _capital, _capital, _sum, _sum, _day)
    return rng.choice(kinds)(rng, split, language)


def _talk(rng: random.Random, split: Split, language: Language) -> Dialogue:
    phrases, answer, why = rng.choice(
        (
            (language.hello, language.hello_answer, "greets me"),
            (language.thanks, language.thanks_answer, "thanks me"),
            (language.who, language.who_answer, "asks who I am"),
        )
    )
    return ask(
        "languages",
        phrases.pick(rng, split),
        answer,
        f"The user {why} in {language.name}. I answer in {language.name}.",
        {"kind": "any", "any": [answer]},
    )


def _capital(rng: random.Random, split: Split, language: Language) -> Dialogue:
    english, country, capital = rng.choice(CAPITALS[language.name])
    answer = language.capital_answer.format(c=country, k=capital).replace("..", ".")
    reasoning = (
        f"The language is {language.name}. The country is {english}. In {language.name} its capital is {capital}."
    )
    return ask(
        "languages",
        language.capital.pick(rng, split).format(c=country),
        answer,
        reasoning,
        {"kind": "contains", "all": [capital]},
    )


def _sum(rng: random.Random, split: Split, language: Language) -> Dialogue:
    operator = rng.choice("++--×")
    while True:
        a, b = draw_pair(rng, split, operator)
        if operator == "+" or (operator == "-" and a >= b) or (operator == "×" and a * b <= 100):
            break
    word = language.operators[operator] if rng.random() < 0.6 else operator
    prompt = language.sum.pick(rng, split).format(a=a, b=b, o=word)
    value = result_of(operator, a, b)
    return ask(
        "languages",
        prompt,
        f"{a} {operator} {b} = {value}",
        steps_of(operator, a, b),
        {"kind": "number", "value": value},
    )


def _day(rng: random.Random, split: Split, language: Language) -> Dialogue:
    index = rng.randrange(7)
    today, tomorrow = language.days[index], language.days[(index + 1) % 7]
    answer = language.next_day_answer.format(x=today, y=tomorrow)
    return ask(
        "languages",
        language.next_day.pick(rng, split).format(x=today),
        answer,
        f"The order is {today}, {tomorrow}.",
        {"kind": "contains", "all": [tomorrow]},
    )
