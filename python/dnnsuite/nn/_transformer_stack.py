# SPDX-License-Identifier: MIT
"""Stacks of transformer layers of B models, and the whole transformer."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument
from ._attention import is_causal_mask
from ._normalization import LayerNorm
from ._parametric import signature_of
from ._transformer import TransformerDecoderLayer, TransformerEncoderLayer
from .array_module import ArrayModule

Tensor = torch.Tensor
_RULES: dict[Any, type[ArrayModule]] = {
    torch.nn.TransformerEncoderLayer: TransformerEncoderLayer,
    torch.nn.TransformerDecoderLayer: TransformerDecoderLayer,
    torch.nn.LayerNorm: LayerNorm,
}


class Stack(ArrayModule):
    """Base of encoder and decoder: `layers`, one after the other, and a `norm` or None at the end."""

    def __init__(self, layer: Any, num_layers: int, norm: Any, B: int) -> None:
        super().__init__(B)
        for name, module in (("layer", layer), ("norm", norm)):
            if getattr(module, "B", B) != B:
                raise InvalidArgument(f"{type(self).__name__}(B={B}): its {name} has B={module.B}")
        self.layers = torch.nn.ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True if every part has a rule. A stack of other layers is fused part by part."""
        norms = {type(model.norm) for model in models}
        layers = {type(layer) for model in models for layer in model.layers}
        return layers <= set(_RULES) and norms <= {*_RULES, type(None)} and len(norms) == 1

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> Any:
        """Build the stack from the models' layers, each by its rule."""
        if not cls.can_fuse(models) or len({len(model.layers) for model in models}) != 1:
            parts = [type(part).__name__ for part in (*models[0].layers, models[0].norm)]
            raise InvalidArgument(
                f"{cls.__name__}: models of {', '.join(parts)} have no rule for all of them; it takes layers and norms "
                "of torch's own classes, as many in each model"
            )
        array: Any = cls.__new__(cls)
        ArrayModule.__init__(array, len(models))
        array.layers = torch.nn.ModuleList(_array(parts) for parts in zip(*(m.layers for m in models), strict=True))
        array.num_layers = models[0].num_layers
        array.norm = None if models[0].norm is None else _array([model.norm for model in models])
        return array.train(models[0].training)

    def to_model(self, index: int) -> torch.nn.Module:
        """Copy model `index` as torch's stack."""
        layers: Any = self.layers
        keywords = {} if isinstance(self, TransformerDecoder) else {"enable_nested_tensor": False}
        norm = None if self.norm is None else self.norm.to_model(index)
        model: Any = type(self).torch_class(layers[0].to_model(index), len(layers), norm, **keywords)
        model.layers = torch.nn.ModuleList(layer.to_model(index) for layer in layers)
        return model.train(self.training)

    def extra_repr(self) -> str:
        return f"num_layers={self.num_layers}, B={self.B}"


def _array(models: Sequence[torch.nn.Module]) -> ArrayModule:
    return _RULES[type(models[0])].from_models(models)


class TransformerEncoder(Stack):
    """`torch.nn.TransformerEncoder` for B models. `encoder_layer` is an array of B layers, which is copied.

    `enable_nested_tensor` and `mask_check` are accepted for compatibility and have no effect: padded positions are
    computed like all others, whereas torch's fast path for inference fills them with zeros.
    """

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
        *,
        B: int,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm, B)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        causal = is_causal_mask(mask) if is_causal is None else is_causal
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal=causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Stack):
    """`torch.nn.TransformerDecoder` for B models. `decoder_layer` is an array of B layers, which is copied."""

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None, *, B: int) -> None:
        super().__init__(decoder_layer, num_layers, norm, B)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        causal = is_causal_mask(tgt_mask) if tgt_is_causal is None else tgt_is_causal
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, tgt_is_causal=causal, memory_is_causal=memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(ArrayModule):
    """`torch.nn.Transformer` for B models (Vaswani et al., 2017): source `[B, S, N, E]` and target `[B, L, N, E]`
    (`batch_first`: N before S and L; without a batch: no N) to `[B, L, N, E]`. Masks are as in `MultiheadAttention`."""

    generate_square_subsequent_mask = staticmethod(torch.nn.Transformer.generate_square_subsequent_mask)

    def __init__(self, *args: Any, B: int, **kwargs: Any) -> None:
        super().__init__(B)
        bound = signature_of(torch.nn.Transformer).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        custom_encoder, custom_decoder = given.pop("custom_encoder"), given.pop("custom_decoder")
        depths = given.pop("num_encoder_layers"), given.pop("num_decoder_layers")
        where = {"device": given["device"], "dtype": given["dtype"], "B": B}

        def norm() -> Any:
            return LayerNorm(given["d_model"], eps=given["layer_norm_eps"], bias=given["bias"], **where)

        self.encoder, self.decoder = custom_encoder, custom_decoder
        if custom_encoder is None:
            encoder_layer = TransformerEncoderLayer(**given, B=B)
            self.encoder = TransformerEncoder(encoder_layer, depths[0], norm(), B=B)
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(**given, B=B)
            self.decoder = TransformerDecoder(decoder_layer, depths[1], norm(), B=B)
        self.d_model, self.nhead, self.batch_first = (given[name] for name in ("d_model", "nhead", "batch_first"))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise matrices with Xavier's uniform rule, model by model, as torch does."""
        for index in range(self.B):
            for parameter in self.parameters():
                if parameter.dim() > 2:
                    torch.nn.init.xavier_uniform_(parameter[index])

    @classmethod
    def can_fuse(cls, models: Sequence[Any]) -> bool:
        """Return True if encoder and decoder have rules, in every model."""
        return all(
            type(model.encoder) is torch.nn.TransformerEncoder and type(model.decoder) is torch.nn.TransformerDecoder
            for model in models
        ) and (
            TransformerEncoder.can_fuse([model.encoder for model in models])
            and TransformerDecoder.can_fuse([model.decoder for model in models])
        )

    @classmethod
    def from_models(cls, models: Sequence[Any]) -> Any:
        """Build the transformer from the models' encoders and decoders, each by its rule."""
        if not cls.can_fuse(models):
            raise InvalidArgument("Transformer: a custom encoder or decoder has no rule; keep it per model")
        array: Any = cls.__new__(cls)
        ArrayModule.__init__(array, len(models))
        array.encoder = TransformerEncoder.from_models([model.encoder for model in models])
        array.decoder = TransformerDecoder.from_models([model.decoder for model in models])
        for name in ("d_model", "nhead", "batch_first"):
            setattr(array, name, getattr(models[0], name))
        return array.train(models[0].training)

    def to_model(self, index: int) -> torch.nn.Module:
        """Copy model `index` as torch's transformer."""
        empty = torch.nn.Identity()
        model = torch.nn.Transformer(
            self.d_model, self.nhead, custom_encoder=empty, custom_decoder=empty, batch_first=self.batch_first
        )
        # Given to the constructor they would be initialised again.
        model.encoder, model.decoder = self.encoder.to_model(index), self.decoder.to_model(index)
        return model.train(self.training)

    def extra_repr(self) -> str:
        return f"d_model={self.d_model}, nhead={self.nhead}, batch_first={self.batch_first}, B={self.B}"

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 1 if self.batch_first else 2
        if src.dim() == 4 and src.shape[batch] != tgt.shape[batch]:
            raise InvalidArgument(
                f"Transformer: src {list(src.shape)} and tgt {list(tgt.shape)} differ in the batch, dimension {batch}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise InvalidArgument(
                f"Transformer takes d_model={self.d_model} features, got {src.shape[-1]} and {tgt.shape[-1]}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
