"""Thoughts stay or go as policy.thinking says, token by token; own texts come from a file; all end tokens stop."""

import json
from types import SimpleNamespace

import pytest

from drkernel.policy import Sampling, load_prompts
from drkernel.policy.model import stop_tokens
from drkernel.policy.tokenizer import train_tokenizer
from drkernel.scaling.models import TokenModel
from drkernel.scaling.records import pack
from drkernel.types import DrKernelError, Task, Verdict

TASK = Task("t", "class Model(nn.Module):\n    pass\n")
QWEN = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{{ m['content'].split('</think>')[-1].lstrip('\n') }}"
    "{% else %}{{ m['content'] }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
OPENING = QWEN.replace("{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}", "<think>\n")
"""A template whose prompt begins the thoughts, as those of thinking-only models."""
CODE = "```python\nclass ModelNew: {}\n```"


def made(code, template=QWEN):
    tokenizer = train_tokenizer(code, 500)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]})
    tokenizer.add_special_tokens({"eos_token": "<|im_end|>"})
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template = template
    return tokenizer


def said(prompts, text):
    return prompts.tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("template", [QWEN, OPENING], ids=["qwen", "opened"])
def test_what_a_stripped_dialogue_shows_is_what_the_chat_template_renders(code, template):
    prompts = load_prompts("chat", made(code, template), thinking="stripped")
    thoughts = "" if template is OPENING else "<think>\n"
    first, ids = prompts.first(TASK), []
    prompt, messages = first, [_message("user", prompts.tokenizer, first)]
    for turn in range(2):
        response = said(prompts, f"{thoughts}try {turn}</think>\n\n{CODE.format(turn)}<|im_end|>")
        ids += prompts.history(prompt, response)
        prompt = prompts.next(f"slow {turn}", last=response[-1])
        messages.append({"role": "assistant", "content": f"a</think>\n\n{CODE.format(turn)}"})
        messages.append(_message("user", prompts.tokenizer, prompt))
    expected = prompts.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=True
    )
    assert prompts.tokenizer.decode(ids + prompt) == expected and "try" not in expected


def _message(role, tokenizer, ids):
    text = tokenizer.decode(ids).split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
    return {"role": role, "content": text}


def test_kept_thoughts_stay_and_no_thoughts_are_asked_for_by_default(code):
    tokenizer = made(code)
    kept, none = load_prompts("chat", tokenizer, thinking="kept"), load_prompts("chat", tokenizer)
    assert "<think>" not in tokenizer.decode(kept.first(TASK)) and "</think>" in tokenizer.decode(none.first(TASK))
    response = said(kept, f"<think>a</think>{CODE}<|im_end|>")
    for prompts in (kept, none):
        assert prompts.history(prompts.first(TASK), response) == prompts.first(TASK) + response


@pytest.mark.parametrize("thinking", ["kept", "stripped"])
def test_code_among_the_thoughts_is_no_submission(code, thinking):
    prompts = load_prompts("chat", made(code), thinking=thinking)
    assert prompts.extract(f"<think>{CODE.format(1)}</think>{CODE.format(2)}") == "class ModelNew: 2\n"
    assert prompts.extract(f"<think>{CODE.format(1)}") is None
    assert prompts.extract(CODE.format(3)) == "class ModelNew: 3\n", "a model may answer at once"
    opened = load_prompts("chat", made(code, OPENING), thinking=thinking)
    assert opened.extract(CODE.format(1)) is None, "the prompt began the thoughts, and they have not ended"


def test_thoughts_that_do_not_end_leave_nothing(code):
    prompts = load_prompts("chat", made(code), thinking="stripped")
    first, end = prompts.first(TASK), said(prompts, "<|im_end|>")
    cut = prompts.history(first, said(prompts, "<think>a b c"), finished=False)
    assert prompts.history(first, said(prompts, "<think>a b c<|im_end|>")) == cut + end
    assert prompts.tokenizer.decode(cut).endswith("<|im_start|>assistant\n")
    assert prompts.next("f", finished=False)[:1] == end


def test_a_tokenizer_without_the_token_that_ends_thoughts_is_refused(code):
    tokenizer = train_tokenizer(code, 500)
    tokenizer.chat_template = QWEN
    with pytest.raises(DrKernelError, match="'stripped' wants one token </think> in the tokenizer, found none"):
        load_prompts("chat", tokenizer, thinking="stripped")


@pytest.mark.parametrize(("named", "found"), [([7, 5], {7, 5}), (7, {7}), (None, set())])
def test_stop_tokens_are_all_that_the_generation_config_names(tmp_path, named, found):
    assert stop_tokens(tmp_path) == set()
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": named}))
    assert stop_tokens(tmp_path) == found


def test_an_answer_that_another_stop_token_ended_is_ended_as_the_dialogue_wants(code):
    tokenizer = made(code)
    other, end = (tokenizer.convert_tokens_to_ids(token) for token in ("<|endoftext|>", "<|im_end|>"))
    prompts = load_prompts("chat", tokenizer, stops={other})
    assert prompts.stop_ids == {other, end}
    assert prompts.next("f", last=other) == [end, *prompts.next("f", last=end)]


def write(path, text):
    path.write_text(text)
    return str(path)


def test_own_texts_come_from_a_file(tmp_path, code):
    text = "system: Be {brief}.\nopening: 'Kernel of {source} as {name}: {{}}'\n"
    text += "revision: 'Found: {feedback}'\ncut: 'Cut. '\n"
    tokenizer = made(code)
    prompts = load_prompts("chat", tokenizer, template=write(tmp_path / "t.yaml", text))
    assert tokenizer.decode(prompts.first(TASK)).startswith(
        "<|im_start|>system\nBe {brief}.<|im_end|>\n<|im_start|>user\nKernel of class Model(nn.Module):\n    pass as "
        "ModelNew: {}<|im_end|>"
    )
    assert "user\nCut. Found: slow<|im_end|>" in tokenizer.decode(prompts.next(" slow ", finished=False))
    partly = load_prompts("chat", tokenizer, template=write(tmp_path / "p.yaml", "system: Be brief."))
    plain = load_prompts("chat", tokenizer)
    assert partly.next("slow") == plain.next("slow") and partly.first(TASK) != plain.first(TASK)


BAD = {
    "opening: no place": "opening: found no {source}, expected it in the text",
    "revision: '{feedback} {soruce}'": "revision: found {soruce}, expected {feedback}; other braces are doubled",
    "revision: '{feedback'": "revision: found a brace that is no place",
    "openning: x": "found a field 'openning', expected some of system, opening, revision, cut",
    "system: 3": "system: found 3, expected text",
    "- a": "found list, expected the fields system, opening, revision, cut",
    "a: [": "not readable",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_template_names_file_field_found_and_expected(tmp_path, code, text):
    path = write(tmp_path / "t.yaml", text)
    with pytest.raises(DrKernelError) as error:
        load_prompts("chat", made(code), template=path)
    assert str(error.value).startswith(f"policy.template: {path}: ") and BAD[text] in str(error.value)


def test_what_needs_a_chat_template_is_refused_without_one(tokenizer, tmp_path):
    for options in ({"template": "t.yaml"}, {"thinking": "kept"}):
        with pytest.raises(DrKernelError, match=r"with policy\.prompts=compact; expected policy\.prompts=chat"):
            load_prompts("compact", tokenizer, **options)
    with pytest.raises(DrKernelError, match=r"nowhere.yaml: not readable \(No such file"):
        load_prompts("chat", tokenizer, template="nowhere.yaml")


class Silent:
    """An engine that keeps what it is asked."""

    context, paused_s = 10_000, 0.0

    def __init__(self):
        self.asked = []

    def add(self, request):
        self.asked.append(request)

    def step(self):
        return []


def test_a_study_strips_thoughts_as_a_rollout_does(code):
    prompts, engine = load_prompts("chat", made(code), thinking="stripped"), Silent()
    limits = {"max_tokens": 10, "feedback_limit": 20, "slots": 4, "sampling": Sampling()}
    model = TokenModel("m", engine, prompts, **limits)
    answer = said(prompts, f"<think>long thoughts</think>\n\n{CODE.format(1)}<|im_end|>")
    record = SimpleNamespace(verdict=Verdict("invalid", "no_code"), answer=pack(answer), finished=True)
    assert model.add("a", TASK, [record], 0)
    model.step()
    text = prompts.tokenizer.decode(engine.asked[0].prompt_ids)
    assert "long thoughts" not in text and CODE.format(1) in text and "no_code" in text
