"""OpenAI's official Python client against kipp serve: what its users do, and the errors that it makes of refusals."""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kipp_process import OK, Kipp
from served import Served, serving

openai = pytest.importorskip("openai", reason="scripts/setup.sh test installs it")

MODEL = "kipp-demo"
KEY = "sesame"
STORY = "Once upon a time"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def served(demo: Kipp) -> Iterator[Served]:
    with serving(demo, "--max-sequences", "8", "--api-key", KEY) as server:
        yield server
        assert server.end()[0] == OK


def client_of(served: Served, key: str = KEY) -> Any:
    return openai.OpenAI(base_url=f"http://{served.host}:{served.port}/v1", api_key=key, max_retries=0, timeout=60)


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    with client_of(served) as client:
        yield client


def ask(client: Any, content: str, **fields: Any) -> Any:
    messages = [{"role": "user", "content": content}]
    return client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **fields)


class Joined:
    """The message that a stream's chunks make up."""

    def __init__(self, stream: Any) -> None:
        self.content = ""
        self.reasoning = ""
        self.calls: list[dict[str, str]] = []
        self.finish: str | None = None
        self.usage: Any = None
        self.logprobs: list[Any] = []
        self.num_chunks = 0
        for chunk in stream:
            self.num_chunks += 1
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices:
                self.add(choice)

    def add(self, choice: Any) -> None:
        assert self.finish is None
        self.finish = choice.finish_reason
        self.content += choice.delta.content or ""
        self.reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        if choice.logprobs is not None:
            self.logprobs += choice.logprobs.content
        for call in choice.delta.tool_calls or []:
            if call.index == len(self.calls):
                assert call.type == "function"
                self.calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
            self.calls[call.index]["arguments"] += call.function.arguments or ""


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).object == "model"


def test_a_chat_whole_and_streamed(client: Any) -> None:
    whole = ask(client, "What is Kipp?")
    message = whole.choices[0].message
    assert "Kipp" in message.content
    assert message.reasoning_content
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert 0 < whole.usage.completion_tokens_details.reasoning_tokens < whole.usage.completion_tokens
    assert whole.system_fingerprint
    joined = Joined(ask(client, "What is Kipp?", stream=True, stream_options={"include_usage": True}))
    assert (joined.content, joined.reasoning, joined.finish) == (message.content, message.reasoning_content, "stop")
    assert joined.usage.completion_tokens == whole.usage.completion_tokens
    assert joined.num_chunks > 10, "piece by piece"


def test_the_streaming_helper(client: Any) -> None:
    whole = ask(client, "What is Kipp?")
    messages = [{"role": "user", "content": "What is Kipp?"}]
    with client.chat.completions.stream(model=MODEL, messages=messages, temperature=0) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == whole.choices[0].message.content


def test_tools_whole_and_streamed_and_the_turn_after_them(client: Any) -> None:
    question = "What is the weather in Paris and in Rome?"
    whole = ask(client, question, tools=[WEATHER], tool_choice="auto")
    calls = whole.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather"] * 2
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert whole.choices[0].finish_reason == "tool_calls"
    assert len({call.id for call in calls}) == 2
    joined = Joined(ask(client, question, tools=[WEATHER], stream=True, logprobs=True, top_logprobs=2))
    assert joined.finish == "tool_calls"
    assert [(call["name"], call["arguments"]) for call in joined.calls] == [
        (call.function.name, call.function.arguments) for call in calls
    ]
    assert "".join(token.token for token in joined.logprobs).count("<tool_call>") == 2
    assert all(len(token.top_logprobs) == 2 for token in joined.logprobs)
    history = [
        {"role": "user", "content": question},
        whole.choices[0].message,
        *({"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls),
    ]
    answer = client.chat.completions.create(model=MODEL, messages=history, tools=[WEATHER], temperature=0)
    assert answer.choices[0].message.content


def test_with_tool_choice_none_nothing_is_called(client: Any) -> None:
    answer = ask(client, "What is the weather in Paris?", tools=[WEATHER], tool_choice="none")
    assert not answer.choices[0].message.tool_calls
    assert answer.choices[0].finish_reason == "stop"
    joined = Joined(ask(client, "What is the weather in Paris?", tools=[WEATHER], tool_choice="none", stream=True))
    assert joined.calls == []
    assert joined.content == answer.choices[0].message.content


def test_choices_stops_seeds_and_log_probabilities(client: Any) -> None:
    whole = ask(client, "What is Kipp?", logprobs=True, top_logprobs=3)
    tokens = whole.choices[0].logprobs.content
    assert len(tokens) in {whole.usage.completion_tokens, whole.usage.completion_tokens - 1}
    assert all(token.logprob <= 0 and bytes(token.bytes).decode() == token.token for token in tokens)
    assert all([top.logprob for top in token.top_logprobs] == sorted((top.logprob for top in token.top_logprobs),
                                                                     reverse=True) for token in tokens)
    assert all(token.top_logprobs[0].token == token.token for token in tokens), "the best one is taken"
    off = {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}}
    free = ask(client, "What is Kipp?", **off).choices[0].message.content
    stop = free[8:12]
    stopped = ask(client, "What is Kipp?", stop=[stop], **off).choices[0]
    assert stopped.message.content == free[: free.index(stop)]
    assert stopped.finish_reason == "stop"
    choices = [
        [choice.message.content for choice in client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Tell me a story"}], n=3, seed=5, temperature=1.2,
            max_completion_tokens=16, extra_body=off["extra_body"]).choices]
        for _ in range(2)
    ]
    assert choices[0] == choices[1]
    assert len(set(choices[0])) == 3


def test_completions_whole_and_streamed(client: Any) -> None:
    ask_for = {"model": MODEL, "prompt": STORY, "max_tokens": 24, "temperature": 0}
    whole = client.completions.create(**ask_for, logprobs=2)
    choice = whole.choices[0]
    assert choice.finish_reason == "length"
    assert whole.usage.completion_tokens == 24
    assert "".join(choice.logprobs.tokens) == choice.text
    assert [choice.text[at:].startswith(token) for at, token in zip(
        choice.logprobs.text_offset, choice.logprobs.tokens, strict=True)] == [True] * 24
    stream = client.completions.create(**ask_for, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == choice.text
    assert chunks[-1].usage.completion_tokens == 24
    echoed = client.completions.create(**ask_for | {"max_tokens": 1}, echo=True, logprobs=1).choices[0]
    assert echoed.text.startswith(STORY)
    assert echoed.logprobs.token_logprobs[0] is None
    several = client.completions.create(**ask_for | {"prompt": [STORY, "The"]}, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.choices[0].text == several.choices[1].text == choice.text


def test_a_stream_that_is_closed_ends_its_request(served: Served, client: Any) -> None:
    stream = client.completions.create(model=MODEL, prompt=STORY, max_tokens=1900, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    for _ in range(8):  # as many as run together: none has to wait for it
        assert client.completions.create(model=MODEL, prompt=STORY, max_tokens=1).usage.completion_tokens == 1


def test_refusals_have_the_classes_that_clients_catch(served: Served, client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, "Hi", extra_body={"temprature": 1})
    assert bad.value.param == "temprature"
    assert "temperature" in bad.value.message
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x " * 4000)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="gpt-4o", prompt="Hi")
    assert missing.value.code == "model_not_found"
    with client_of(served, "wrong") as stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def refusal_of(client: Any) -> Any:
    """What a client is told when the queue is full; it asks until somebody waits."""
    for _ in range(20):
        time.sleep(0.5)
        try:
            client.with_options(timeout=1).completions.create(model=MODEL, prompt="Hi")
        except openai.RateLimitError as full:
            return full
        except openai.APITimeoutError:
            continue
    raise AssertionError("never refused")


def test_a_full_queue_is_a_rate_limit(demo: Kipp) -> None:
    flags = ("--max-sequences", "1", "--max-waiting", "1")
    with serving(demo, *flags) as served, client_of(served) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = client.completions.create(model=MODEL, prompt=STORY, max_tokens=1900, stream=True,
                                            extra_body={"ignore_eos": True})
        next(iter(running))
        patient = client.with_options(max_retries=10)  # the client's own way with 429 and Retry-After
        waiting = pool.submit(patient.completions.create, model=MODEL, prompt=STORY, max_tokens=2)
        full = refusal_of(client)
        running.close()
        assert waiting.result().usage.completion_tokens == 2
        assert full.code == "queue_full"
        assert int(full.response.headers["retry-after"]) >= 1
        assert served.end()[0] == OK
