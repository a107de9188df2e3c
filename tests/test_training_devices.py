import pytest

from scripts.training.devices import DeviceError, split_gpus, visible_gpus


def test_the_schedulers_choice_is_taken():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2, 3"}) == ["2", "3"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"}) == ["GPU-aa", "GPU-bb"]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []


def test_engine_and_trainer_never_share_a_gpu():
    assert split_gpus(["4", "5", "6", "7"], 2, 1) == (["4", "5"], ["6"])


@pytest.mark.parametrize(("visible", "seen"), [(["0"], r"see 1 \(0\)"), ([], "see none")])
def test_too_few_gpus_say_what_was_expected(visible, seen):
    with pytest.raises(DeviceError, match=rf"expected 3 GPUs \(engine.tensor_parallel 2 \+ training.gpus 1\), {seen}"):
        split_gpus(visible, 2, 1)
