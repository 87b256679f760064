"""The tokenizer all kinds share, so that any of them can draft for any other."""

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 4096
BOS_ID, EOS_ID = 0, 1
_BOS, _EOS = "<s>", "</s>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
# The tokenizer learns from this many files of the standard library (about 5 MB); more change nothing.
_TEXT_FILES = 150


def tokenizer() -> "PreTrainedTokenizerFast":
    """A byte-level BPE tokenizer trained on the source of Python's standard library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[_BOS, _EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:_TEXT_FILES]
    bpe.train([str(text) for text in texts], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=_BOS, eos_token=_EOS, chat_template=_CHAT_TEMPLATE
    )
