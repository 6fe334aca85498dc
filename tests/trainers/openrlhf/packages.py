"""Empty modules where OpenRLHF imports packages that need a GPU; none of them is called here."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

ABSENT = {
    "vllm": (),
    "vllm.inputs": ("TokensPrompt",),
    "vllm.utils": ("random_uuid",),
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
}


def stand_in():
    """Put them in place, before OpenRLHF is imported."""
    for name, attributes in ABSENT.items():
        if name not in sys.modules:
            module = importlib.util.module_from_spec(ModuleSpec(name, None))
            for attribute in attributes:
                setattr(module, attribute, object)
            sys.modules[name] = module
