"""Tool calls: weather, calculator, search under many names, two in parallel, answers from results, no call at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.demo.chat import dump
from tools.demo.core import Dialogue, Phrases, Split, draw, load_lines

CITIES = [line.split("\t")[1] for line in load_lines("capitals.tsv")] + [
    "New York",
    "Boston",
    "Chicago",
    "Seattle",
    "Sydney",
    "Toronto",
    "Munich",
    "Hamburg",
    "Barcelona",
    "Milan",
    "Lyon",
    "Shanghai",
    "Osaka",
    "Mumbai",
    "Dubai",
    "Istanbul",
    "Zurich",
    "Geneva",
    "Porto",
    "Oxford",
    "San Francisco",
    "Los Angeles",
]
TOPICS = load_lines("topics.txt")
WORDS = load_lines("words.txt")
CONDITIONS = ("sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear", "stormy", "partly cloudy")

WEATHER = Phrases(
    "What is the weather in {c}?",
    "What's the weather like in {c}?",
    "How is the weather in {c}?",
    "How's the weather in {c} today?",
    "Weather in {c}?",
    "Tell me the weather in {c}.",
    "Is it raining in {c}?",
    "Is it cold in {c} right now?",
    "Do I need an umbrella in {c}?",
    "What is the temperature in {c}?",
    "How warm is it in {c}?",
    "Can you check the weather in {c}?",
    "Please look up the weather for {c}.",
    "What's the forecast for {c}?",
    "Current weather in {c}, please.",
    "Is it sunny in {c}?",
)
CALCULATE = Phrases(
    "What is {e}?",
    "Calculate {e}.",
    "Use the calculator: {e}",
    "Compute {e}",
    "How much is {e}?",
    "Please calculate {e}.",
    "Evaluate {e}.",
    "Can you compute {e} for me?",
    "I need the result of {e}.",
    "Work out {e}",
    "{e} = ?",
    "What does {e} equal?",
)
SEARCH = Phrases(
    "Search the web for {q}.",
    "Search for {q}.",
    "Look up {q}.",
    "Find information about {q}.",
    "Can you search for {q}?",
    "Please look up {q}.",
    "Find me something about {q}",
    "Search online for {q}.",
    "What can you find about {q}?",
    "Look for {q} on the web.",
    "Google {q} for me.",
    "I want to know more about {q}, search for it.",
)
TWO_CITIES = Phrases(
    "What is the weather in {c} and {d}?",
    "Compare the weather in {c} and {d}.",
    "How is the weather in {c} and in {d}?",
    "Weather in {c} and {d}, please.",
    "Tell me the weather in {c} and {d}.",
    "Is it warmer in {c} or in {d}?",
    "Check the weather for {c} and for {d}.",
)
BOTH = Phrases(
    "{first} Also, {second}",
    "{first} And {second}",
    "{first} {Second}",
    "I have two questions. {First} {Second}",
    "First: {first} Second: {second}",
    "{First} After that: {second}",
)
EXTRAS = (
    ("get_time", "Get the current time in a city.", "city", "The name of the city"),
    ("translate", "Translate a text into English.", "text", "The text to translate"),
    ("send_email", "Send an email.", "address", "The address to send to"),
    ("get_news", "Get the latest news.", "topic", "The topic of the news"),
    ("set_timer", "Set a timer.", "minutes", "The number of minutes"),
    ("play_music", "Play a song.", "song", "The title of the song"),
)


class Tool:
    """A function as the prompt declares it: its name and its one required parameter vary from dialogue to dialogue."""

    def __init__(self, rng: random.Random, kind: str) -> None:
        self.kind = kind
        if kind in KINDS:
            self.name, self.key = rng.choice(KINDS[kind].names), rng.choice(KINDS[kind].keys)
            about, what = rng.choice(KINDS[kind].abouts), rng.choice(KINDS[kind].whats)
        else:
            self.name, about, self.key, what = next(extra for extra in EXTRAS if extra[0] == kind)
        property_: dict[str, Any] = {"type": "string"}
        if rng.random() < 0.7:
            property_["description"] = what
        function: dict[str, Any] = {"name": self.name, "description": about}
        function["parameters"] = {"type": "object", "properties": {self.key: property_}, "required": [self.key]}
        self.schema = {"type": "function", "function": function}

    def call(self, argument: str) -> dict[str, Any]:
        return {"name": self.name, "arguments": {self.key: argument}}


def _toolbox(rng: random.Random, *needed: str) -> dict[str, Tool]:
    kinds = list(needed)
    for other in (*KINDS, rng.choice(EXTRAS)[0]):
        if other not in kinds and rng.random() < 0.45:
            kinds.append(other)
    rng.shuffle(kinds)
    return {kind: Tool(rng, kind) for kind in kinds}


def _expression(rng: random.Random) -> str:
    def operand() -> str:
        return str(rng.choice((rng.randint(2, 99), rng.randint(100, 999), rng.randint(1000, 9999))))

    parts = [operand()]
    for _ in range(1 if rng.random() < 0.7 else 2):
        parts += [rng.choice("+-*/"), operand()]
    return " ".join(parts)


def _topic(rng: random.Random) -> str:
    """Mostly free combinations of words, so that the query has to be copied and not recalled."""
    if rng.random() < 0.3:
        return rng.choice(TOPICS)
    pattern = rng.choice(
        (
            "{a} {b}",
            "the {a} of {b}",
            "{a} and {b}",
            "how to {a} a {b}",
            "{a} for {b}",
            "the best {a}",
            "{a} in {c}",
            "{a} {b} {d}",
            "{a}",
        )
    )
    a, b, d = rng.choice(WORDS), rng.choice(WORDS), rng.choice(WORDS)
    return pattern.format(a=a, b=b, c=rng.choice(CITIES), d=d)


@dataclass(frozen=True)
class Kind:
    """A tool that the prompts ask for: what a dialogue draws its declaration from (repeated: more often), and how."""

    names: tuple[str, ...]
    keys: tuple[str, ...]
    abouts: tuple[str, ...]
    whats: tuple[str, ...]  # descriptions of the parameter
    questions: Phrases  # with {c}, {e} or {q} for the argument
    argument: Callable[[random.Random], str]
    entity: str  # names the argument where entities are held out
    wish: str  # as the reasoning words it


KINDS = {
    "weather": Kind(
        names=("get_weather", "get_weather", "get_current_weather", "weather", "weather_lookup", "fetch_weather",
               "current_weather"),
        keys=("city", "city", "location", "location", "place"),
        abouts=("Get the current weather for a city.", "Get the weather in a place.", "Returns the current weather.",
                "Look up the weather"),
        whats=("The name of the city", "City name", "The city, e.g. Paris"),
        questions=WEATHER,
        argument=lambda rng: rng.choice(CITIES),
        entity="weather",
        wish="the weather in",
    ),
    "calculator": Kind(
        names=("calculator", "calculator", "calculate", "compute", "evaluate", "math"),
        keys=("expression", "expression", "expr", "formula"),
        abouts=("Evaluate an arithmetic expression.", "Calculate the value of an expression.", "A simple calculator.",
                "Do arithmetic"),
        whats=("The expression to evaluate", "Arithmetic expression", "The expression, e.g. 2 + 3"),
        questions=CALCULATE,
        argument=_expression,
        entity="expression",
        wish="a calculation,",
    ),
    "search": Kind(
        names=("search", "web_search", "web_search", "search_web", "internet_search", "lookup"),
        keys=("query", "query", "q", "text"),
        abouts=("Search the web.", "Search the internet for information.", "Find web pages about a topic.",
                "Web search"),
        whats=("The search query", "What to search for", "Search terms"),
        questions=SEARCH,
        argument=_topic,
        entity="search",
        wish="a search for",
    ),
}


def _request(rng: random.Random, split: Split, kind: str) -> tuple[str, str]:
    """A question for this tool and the argument that it needs."""
    entity = KINDS[kind].entity
    argument = draw(rng, split, KINDS[kind].argument, lambda drawn: f"{entity}:{drawn}")
    return KINDS[kind].questions.pick(rng, split).format(c=argument, e=argument, q=argument), argument


def _reason(tool: Tool, argument: str) -> str:
    return f"The user wants {KINDS[tool.kind].wish} {argument}. I call {tool.name} with {tool.key}."


def _dialogue(skill: str, prompt: str, tools: dict[str, Tool], calls: list[dict[str, Any]], reasoning: str) -> Dialogue:
    return Dialogue(
        skill,
        [{"role": "user", "content": prompt}],
        "",
        reasoning,
        {"kind": "tool_calls", "calls": calls},
        tools=[tool.schema for tool in tools.values()],
        tool_calls=calls,
    )


def tool_call(rng: random.Random, split: Split) -> Dialogue:
    kind = rng.choice(tuple(KINDS))
    tools = _toolbox(rng, kind)
    prompt, argument = _request(rng, split, kind)
    return _dialogue("tool call", prompt, tools, [tools[kind].call(argument)], _reason(tools[kind], argument))


def parallel_calls(rng: random.Random, split: Split) -> Dialogue:
    if rng.random() < 0.5:
        tools = _toolbox(rng, "weather")
        first, second = draw(rng, split, lambda r: r.sample(CITIES, 2), lambda v: f"weather:{v[0]}:{v[1]}")
        prompt = TWO_CITIES.pick(rng, split).format(c=first, d=second)
        tool = tools["weather"]
        reasoning = f"The user asks about two cities, {first} and {second}. I call {tool.name} twice."
        return _dialogue("parallel tool calls", prompt, tools, [tool.call(first), tool.call(second)], reasoning)
    kinds = rng.sample(tuple(KINDS), 2)
    tools = _toolbox(rng, *kinds)
    (first, one), (second, two) = (_request(rng, split, kind) for kind in kinds)
    lower = second[:1].lower() + second[1:]
    prompt = BOTH.pick(rng, split).format(first=first, First=first, second=lower, Second=second)
    calls = [tools[kinds[0]].call(one), tools[kinds[1]].call(two)]
    reasoning = f"The user wants two things. I call {tools[kinds[0]].name} and {tools[kinds[1]].name}."
    return _dialogue("parallel tool calls", prompt, tools, calls, reasoning)


def _weather_result(rng: random.Random, city: str) -> tuple[str, str, list[str]]:
    degrees, condition = rng.randint(-15, 42), rng.choice(CONDITIONS)
    key = rng.choice(("temperature", "temperature", "temp", "degrees"))
    fields = [(key, degrees), (rng.choice(("condition", "condition", "weather", "sky")), condition)]
    if rng.random() < 0.4:
        fields.insert(0, ("city", city))
    if rng.random() < 0.15:
        return (
            f"{condition}, {degrees} degrees",
            f"It is {condition} in {city}, with {degrees} degrees.",
            [str(degrees), condition],
        )
    return dump(dict(fields)), f"It is {condition} in {city}, with {degrees} degrees.", [str(degrees), condition]


def _tool_result(rng: random.Random, kind: str, argument: str) -> tuple[str, str, list[str]]:
    """Content of the tool's message, the answer to give, and what the answer must contain."""
    if kind == "weather":
        return _weather_result(rng, argument)
    if kind == "calculator":
        value = str(rng.randint(0, 99999))
        content = rng.choice((value, dump({"result": int(value)}), dump({"value": int(value)})))
        return content, f"{argument} = {value}.", [value]
    fact = rng.choice(FACTS).format(q=argument)
    content = rng.choice((fact, dump({"results": [fact]}), dump({"title": argument, "text": fact})))
    return content, f"I found this: {fact}", [fact]


FACTS = (
    "{q} is described on many pages.",
    "There are {q} guides for beginners.",
    "A new book about {q} came out this year.",
    "The museum has a room about {q}.",
    "Experts say that {q} is worth a look.",
    "People often ask about {q}.",
    "The first notes about {q} are very old.",
    "A short film about {q} won a prize.",
)


def _assistant(calls: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": call} for call in calls],
    }


def tool_answer(rng: random.Random, split: Split) -> Dialogue:
    two = rng.random() < 0.25
    if two:
        tools = _toolbox(rng, "weather")
        cities = draw(rng, split, lambda r: r.sample(CITIES, 2), lambda v: f"weather:{v[0]}:{v[1]}")
        prompt = TWO_CITIES.pick(rng, split).format(c=cities[0], d=cities[1])
        requests = [("weather", city) for city in cities]
    else:
        kind = rng.choice(tuple(KINDS))
        tools = _toolbox(rng, kind)
        prompt, argument = _request(rng, split, kind)
        requests = [(kind, argument)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
    messages.append(_assistant([tools[kind].call(argument) for kind, argument in requests]))
    answers, expected = [], []
    for kind, argument in requests:
        content, answer, parts = _tool_result(rng, kind, argument)
        messages.append({"role": "tool", "content": content})
        answers.append(answer)
        expected += parts
    reasoning = (
        "The tools have answered. I report both results." if two else "The tool has answered. I report the result."
    )
    return Dialogue(
        "tool answer",
        messages,
        " ".join(answers),
        reasoning,
        {"kind": "contains", "all": expected},
        tools=[tool.schema for tool in tools.values()],
    )


def unused_tools(rng: random.Random) -> list[dict[str, Any]]:
    """Declared but not needed: the question is answered without a call."""
    return [tool.schema for tool in _toolbox(rng, rng.choice(tuple(KINDS))).values()]
