import pytest

torch = pytest.importorskip("torch")

from scripts.training.cpu_patches import varlen_attention  # noqa: E402


def reference(query, key, value, scale, window=-1):
    """Attention of one segment, written out."""
    heads, shared = query.shape[1], query.shape[1] // key.shape[1]
    out = torch.empty_like(query)
    for head in range(heads):
        k, v = key[:, head // shared], value[:, head // shared]
        for row in range(query.shape[0]):
            last = key.shape[0] - query.shape[0] + row
            first = 0 if window < 0 else max(0, last - window)
            weights = torch.softmax(k[first : last + 1] @ query[row, head] * scale, dim=0)
            out[row, head] = weights @ v[first : last + 1]
    return out


@pytest.mark.parametrize("window", [-1, 2])
def test_segments_attend_to_their_own_keys_and_the_last_query_sees_all(window):
    torch.manual_seed(0)
    lengths_query, lengths_key = [3, 1, 4], [5, 1, 9]
    query = torch.randn(sum(lengths_query), 4, 8)
    key, value = torch.randn(sum(lengths_key), 2, 8), torch.randn(sum(lengths_key), 2, 8)
    ends_query, ends_key = torch.tensor([0, 3, 4, 8]), torch.tensor([0, 5, 6, 15])
    got = varlen_attention(query, key, value, ends_query, ends_key, 4, 9, softmax_scale=0.3, window_size=(window, 0))
    wanted = [
        reference(q, k, v, 0.3, window)
        for q, k, v in zip(query.split(lengths_query), key.split(lengths_key), value.split(lengths_key), strict=True)
    ]
    torch.testing.assert_close(got, torch.cat(wanted))


def test_what_is_not_rebuilt_is_refused():
    one = torch.zeros(1, 1, 8)
    ends = torch.tensor([0, 1])
    with pytest.raises(NotImplementedError, match="softcap"):
        varlen_attention(one, one, one, ends, ends, 1, 1, softcap=5.0)
    with pytest.raises(NotImplementedError, match="later tokens"):
        varlen_attention(one, one, one, ends, ends, 1, 1, causal=False)


def test_trl_is_patched_on_cpus_and_left_alone_on_gpus():
    pytest.importorskip("trl")
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    from scripts.training import cpu_patches

    before = packing._flash_attn, async_grpo_trainer.get_peak_flops_per_device
    try:
        cpu_patches.apply("cuda")
        assert (packing._flash_attn, async_grpo_trainer.get_peak_flops_per_device) == before
        cpu_patches.apply("cpu")
        assert packing._flash_attn().flash_attn_varlen_func is varlen_attention
    finally:
        packing._flash_attn, async_grpo_trainer.get_peak_flops_per_device = before
