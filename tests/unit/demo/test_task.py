import pytest
import torch

from satwatch.demo.task import TASKS


@pytest.mark.parametrize(
    ("task", "digits", "response", "reward"),
    [
        ("reverse", [1, 2, 3, 4, 5, 6], [6, 5, 4, 3, 2, 1], 1.0),
        ("reverse", [1, 2, 3, 4, 5, 6], [6, 5, 4, 9, 9, 9], 0.5),
        ("reverse", [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], 0.0),
        ("reverse", [0, 0, 0, 0, 0, 0], [10, 10, 10, 10, 10, 10], 0.0),
        ("sort", [7, 0, 3, 3], [0, 3, 3, 7], 1.0),
        ("sort", [7, 0, 3, 3], [0, 3, 7, 3], 0.5),
        ("sort", [7, 0, 3, 3], [7, 7, 7, 7], 0.25),
    ],
)
def test_the_reward_is_the_share_of_right_positions(task, digits, response, reward):
    prompt = torch.tensor([[*digits, TASKS[task].base]])
    assert TASKS[task].reward(prompt, torch.tensor([response])).tolist() == [reward]


@pytest.mark.parametrize("name", ["reverse", "sort"])
def test_prompts_are_digits_and_a_separator_and_follow_the_generator(name):
    task = TASKS[name]
    prompts = task.draw_prompts(500, torch.Generator().manual_seed(3))
    assert prompts.shape == (500, task.prompt_length)
    assert (prompts[:, -1] == task.base).all()
    assert prompts[:, :-1].unique().tolist() == list(range(task.base))
    assert torch.equal(prompts, task.draw_prompts(500, torch.Generator().manual_seed(3)))
    assert not torch.equal(prompts, task.draw_prompts(500, torch.Generator().manual_seed(4)))
