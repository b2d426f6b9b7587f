"""Options of ``llama-server``, as vendored in llama-cpp-python 0.3.36; its versions are builds, so none is stated."""

from __future__ import annotations

from infcalc.engines.flags.flag import Flag

_SERVER = "llama.cpp, tools/server/README.md"

FLAGS = (
    Flag(name="-m", meaning="the GGUF file", source=_SERVER),
    Flag(
        name="-c",
        meaning="cells of the KV cache, of all slots together; 0: the model's own length",
        default="0",
        source=_SERVER,
    ),
    Flag(
        name="-np",
        meaning="slots; each gets an equal part of -c",
        default="4 slots that share -c",
        source=_SERVER,
    ),
    Flag(name="-ub", meaning="tokens of one pass over the GPU", default="512", source=_SERVER),
    Flag(name="-b", meaning="tokens that are handed over at once", default="2048", source=_SERVER),
    Flag(name="-ngl", meaning="layers on the GPUs; the head counts as one", default="auto", source=_SERVER),
    Flag(
        name="-sm",
        meaning="how GPUs share the model: layer gives each some layers, row splits each matrix",
        default="layer",
        source=_SERVER,
    ),
    Flag(name="-ctk", meaning="how keys are stored", default="f16", source=_SERVER),
    Flag(
        name="-ctv", meaning="how values are stored; other than in 16 bit it needs -fa", default="f16", source=_SERVER
    ),
    Flag(name="-fa", meaning="flash attention", default="auto", source=_SERVER),
    Flag(name="-md", meaning="GGUF file of the draft model", source=_SERVER),
    Flag(name="--draft-max", meaning="tokens that are drafted in a round", default="16", source=_SERVER),
    Flag(name="-a", meaning="name of the model in requests", default="its path", source=_SERVER),
    Flag(name="--host", meaning="address to listen on", default="127.0.0.1", source=_SERVER),
    Flag(name="--port", meaning="port to listen on", default="8080", source=_SERVER),
)
