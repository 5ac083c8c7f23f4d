"""Attention and dropout: PyTorch's, or on a CPU the faster ones of kernels/, which compute the same functions."""

from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from electra_trainer.kernels.cpu_attention import two_products
from electra_trainer.kernels.cpu_dropout import drop
from electra_trainer.kernels.vmapped import batched


class Pieces(NamedTuple):
    """In place of a bias: the pieces of all rows, one after another, for FlashAttention."""

    ends_P: Tensor
    """int32: 0, and the flat position at which each piece ends; the last one again for pieces that are not there."""
    reach: int | None
    """As `attention_bias` has it."""

    @classmethod
    def of(cls, piece_BT: Tensor, most: int, reach: int | None = None) -> "Pieces":
        """At most `most` pieces; a run of padding is one. Nothing is asked of the device."""
        begins_BT = F.pad(piece_BT[:, 1:] != piece_BT[:, :-1], (1, 0), value=True)
        number_N = begins_BT.flatten().cumsum(0)
        number_P = torch.arange(1, most + 2, device=piece_BT.device)
        return cls(torch.searchsorted(number_N, number_P, out_int32=True), reach)


Bias = Tensor | Pieces | None
"""The tokens that a token sees: all (None), or as `attention_bias` says."""


def attend(query: Tensor, key: Tensor, value: Tensor, *, bias_B1TT: Bias, dropout: float) -> Tensor:
    """softmax(QKᵀ/√d + bias) V: each argument and the result [B, H, T, D/H]; `dropout` is the share of weights
    dropped.
    """
    if isinstance(bias_B1TT, Pieces):
        return _by_pieces(query, key, value, bias_B1TT, dropout)
    if batched(query) and query.device.type == "cpu":  # torch.vmap has no rule for the kernels that follow
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return drop((scores if bias_B1TT is None else scores + bias_B1TT).softmax(-1), dropout) @ value
    if query.device.type == "cpu" and (query.dtype == torch.bfloat16 or dropout > 0):
        return two_products(query, key, value, bias_B1TT, dropout)
    if query.is_cuda and 16 * dropout % 1:
        with sdpa_kernel(_DROP_EXACTLY):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias_B1TT, dropout_p=dropout)


def _by_pieces(query: Tensor, key: Tensor, value: Tensor, pieces: Pieces, dropout: float) -> Tensor:
    """FlashAttention's kernel compares 8 random bits: it keeps what it divides by where the share is a 256th."""
    rows, _, tokens, _ = query.shape
    flat = [one.transpose(1, 2).flatten(0, 1) for one in (query, key, value)]
    ends_P, share, reach = pieces.ends_P, round(256 * dropout) / 256, pieces.reach
    mixed_NHS: Tensor = torch.ops.aten._flash_attention_forward(
        *flat, ends_P, ends_P, tokens, tokens, share, False, False, window_size_left=reach, window_size_right=reach
    )[0]
    return mixed_NHS.view(rows, tokens, *mixed_NHS.shape[1:]).transpose(1, 2)


def attention_bias(
    piece_BT: Tensor, dtype: torch.dtype, *, reach: int | None = None, most_pieces: int | None = None
) -> Bias:
    """Added to attention scores, [B, 1, T, T]: 0 between tokens of one piece (or both padding), -inf elsewhere; B may
    be 1.

    None if all tokens may see each other.

    Args:
        piece_BT: the piece that each token belongs to.
        dtype: of the result.
        reach: tokens to either side beyond which a token sees nothing; None: it sees the whole piece.
        most_pieces: return `Pieces` instead, with room for this number of them.
    """
    if most_pieces is not None:
        return Pieces.of(piece_BT, most_pieces, reach)
    tokens = piece_BT.shape[1]
    if whole_rows(piece_BT):
        if reach is None or reach >= tokens - 1:
            return None
        piece_BT = piece_BT[:1]
    same_BTT = piece_BT[:, :, None] == piece_BT[:, None, :]
    if reach is not None:
        place_T = torch.arange(tokens, device=piece_BT.device)
        same_BTT = same_BTT & ((place_T[:, None] - place_T).abs() <= reach)
    zeros = torch.zeros(same_BTT.shape, dtype=dtype, device=piece_BT.device)
    return zeros.masked_fill(~same_BTT, float("-inf"))[:, None]


def whole_rows(piece_BT: Tensor) -> bool:
    """True if every row is known to be one piece; False on a GPU, where checking would force a synchronization, and
    inside torch.vmap.
    """
    return piece_BT.device.type == "cpu" and not batched(piece_BT) and bool((piece_BT == piece_BT[:, :1]).all())


_DROP_EXACTLY = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN, which a GPU's PyTorch takes first: some of its kernels round the share that is dropped to a multiple of
1/16 (https://github.com/pytorch/pytorch/issues/174245)."""


class Read(NamedTuple):
    """The positions of a batch at which the output of a layer is read, where these are not all."""

    slots_K: Tensor
    shape_BT: torch.Size

    @classmethod
    def of(cls, slots_K: Tensor | None, piece_BT: Tensor) -> "Read | None":
        """A `Read` of these slots; None if all positions are read."""
        return None if slots_K is None else cls(slots_K, piece_BT.shape)


def at(hidden_BTD: Tensor, slots_K: Tensor) -> Tensor:
    """Hidden states at flat positions, [K, D]; a slot that is not used (-1) reads any row."""
    # index_select's gradient is one kernel on a GPU, that of indexing sorts
    return hidden_BTD.flatten(0, 1).index_select(0, slots_K.clamp(min=0))


class Dropout(nn.Module):
    """Sets a share `p` of the elements to 0 in training and scales the others by 1 / (1 - p)."""

    computes: ClassVar[Literal["any"]] = "any"

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor, read: Read | None = None) -> Tensor:
        if read is None or not self.training or self.p <= 0:
            return drop(x, self.p) if self.training else x
        # numbers for all positions: what is dropped, here and later, does not follow from which are read
        factor_BTD = drop(torch.ones(*read.shape_BT, x.shape[-1], device=x.device), self.p)
        return (x * at(factor_BTD, read.slots_K)).to(x.dtype)

    def extra_repr(self) -> str:
        return f"p={self.p}"
