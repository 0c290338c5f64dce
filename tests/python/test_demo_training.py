"""The training code against Transformers and against the plain formulas. Skipped where torch is not installed."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

from tools.demo import corpus, optimizer  # noqa: E402
from tools.demo.core import LETTERS_CLOSE, LETTERS_OPEN, Document  # noqa: E402
from tools.demo.model import Forward, Shape, TiedCrossEntropy, batch_targets, build  # noqa: E402

SMALL = Shape(layers=2, hidden=32, ffn=48, query_heads=4, kv_heads=2)


def test_forward_pass_is_the_transformers_model():
    model = build(SMALL, 50, 1)
    tokens = torch.randint(51, (3, 48), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = model.model(input_ids=tokens).last_hidden_state.reshape(-1, SMALL.hidden)
        found = Forward(model, SMALL, torch.float32)(tokens)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pieces", [1, 3])
def test_loss_is_the_full_softmax_with_zero_rows(pieces):
    """Value and gradients against a softmax over all rows, unused ones included."""
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(10, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    embedding = torch.randn(6, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(6, (10,), generator=generator)
    weights = torch.rand(10, generator=generator, dtype=torch.float64)
    full = torch.cat((embedding, torch.zeros(100, 8, dtype=torch.float64)))
    losses = torch.nn.functional.cross_entropy(hidden @ full.t(), targets, reduction="none")
    expected = (losses * weights).sum() / weights.sum()
    expected.backward()
    copies = [tensor.detach().float().requires_grad_() for tensor in (hidden, embedding)]
    found = TiedCrossEntropy.apply(*copies, targets, weights.float(), 100, torch.float32, pieces)
    (2 * found).backward()
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(copies[0].grad, 2 * hidden.grad.float(), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(copies[1].grad, 2 * embedding.grad.float(), rtol=1e-4, atol=1e-6)


def test_targets_and_weights():
    tokens = torch.tensor([[5, 6, 9, 7, 0, 0]])
    targets, weights = batch_targets(tokens, torch.tensor([[2, 4]]), 9, 0.25)
    assert targets[:3].tolist() == [6, 0, 7]
    assert weights.tolist() == [0.25, 0.0, 1.0, 0.0, 0.0, 0.0]


def test_orthogonalise_brings_singular_values_near_one():
    matrices = torch.randn(3, 24, 8, generator=torch.Generator().manual_seed(4))
    values = torch.linalg.svdvals(optimizer.orthogonalise(matrices, torch.float32))
    assert values.min() > 0.5 and values.max() < 1.4


def test_schedule_starts_and_ends_at_zero():
    assert optimizer.schedule(0.0) == 0.0
    assert optimizer.schedule(0.3) == 1.0
    assert math.isclose(optimizer.schedule(0.7), 0.5)
    assert optimizer.schedule(1.0) == 0.0


def test_encoder_joins_prompt_and_completion():
    tokenizer = corpus.load_tokenizer()
    encoder = corpus.Encoder(tokenizer)
    (row,) = encoder.encode([(Document(f'cat backwards is "{LETTERS_OPEN}tac{LETTERS_CLOSE}".'), True)])
    assert tokenizer.decode(row.ids, skip_special_tokens=False) == 'cat backwards is "tac".<|endoftext|>'
    letters = [tokenizer.token_to_id(letter) for letter in "tac"]
    assert any(row.ids[i : i + 3] == letters for i in range(len(row.ids)))
    assert row.prompt_length == 1


def test_shards_hold_the_rendered_text_and_no_untrained_target():
    from tools.demo.mixture import Mixture

    tokenizer = corpus.load_tokenizer()
    vocabulary = corpus.Vocabulary(np.array(sorted(corpus.survey(tokenizer, 1, 800)), dtype=np.int32))
    shard = corpus.make_shard(
        corpus.Encoder(tokenizer), Mixture(2, corpus.foreign_words(tokenizer, 2)), vocabulary, 200
    )
    total = 0
    for length in corpus.LENGTHS:
        for tokens, (prompt, end) in zip(shard[f"tokens{length}"], shard[f"spans{length}"], strict=True):
            total += 1
            assert 0 < prompt < end <= length
            assert (tokens[prompt:end] != vocabulary.unknown).all()
            assert tokenizer.decode([int(vocabulary.rows[tokens[end - 1]])], skip_special_tokens=False) in (
                "<|im_end|>",
                "<|endoftext|>",
            )
    assert total > 100


def test_every_length_divides_the_batch():
    assert all(corpus.TOKENS_PER_BATCH % length == 0 for length in corpus.LENGTHS)
