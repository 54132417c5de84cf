"""The option names of llama.cpp, without their dashes; read from a build of October 2026."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .llama_chain import OFF


@dataclass(frozen=True)
class LlamaEntry:
    """A value, and how and where the file spells its key."""

    spelled: str
    value: Any
    line: int = 0


OPTIONS: Mapping[str, tuple[str, ...]] = {
    **{key: (key,) for key in OFF},
    **{key: (key,) for key in ("dry-sequence-breaker", "samplers", "ignore-eos", "grammar", "grammar-file")},
    "temp": ("temp", "temperature"),
    "typical": ("typical", "typical-p"),
    "top-n-sigma": ("top-n-sigma", "top-nsigma"),
    "sampler-seq": ("sampler-seq", "sampling-seq"),
    "seed": ("seed", "s"),
    "n-predict": ("n-predict", "predict", "n"),
    "logit-bias": ("logit-bias", "l"),
    "json-schema": ("json-schema", "j"),
    "json-schema-file": ("json-schema-file", "jf"),
    "reverse-prompt": ("reverse-prompt", "r"),
    "system-prompt": ("system-prompt", "sys"),
}
OPTION_BY_NAME = {name: option for option, names in OPTIONS.items() for name in names}
MEANT_OPTIONS = {"repetition-penalty": "repeat-penalty", "rep-pen": "repeat-penalty", "max-tokens": "n-predict"}

# The key of a GGUF, where it is no option with underscores.
METADATA_OPTIONS = {
    "penalty-last-n": "repeat-last-n",
    "penalty-repeat": "repeat-penalty",
    "mirostat-tau": "mirostat-ent",
    "mirostat-eta": "mirostat-lr",
    "sequence": "samplers",
}

_LONG = """
agent alias api-key api-key-file api-prefix attention audio backend-sampling batch-size binary-file
cache-idle-slots cache-list cache-prompt cache-ram cache-reuse cache-type-k cache-type-k-draft cache-type-v
cache-type-v-draft cached chat-template chat-template-file chat-template-kwargs check-tensors checkpoint-min-step
chunk chunk-separator chunk-size chunks cls-separator color completion-bash cont-batching context-file
context-shift control-vector control-vector-layer-range control-vector-scaled conversation cors-credentials
cors-headers cors-methods cors-origins cpu-mask cpu-mask-batch cpu-mask-batch-draft cpu-mask-draft cpu-moe
cpu-moe-draft cpu-range cpu-range-batch cpu-range-batch-draft cpu-range-draft cpu-strict cpu-strict-batch
cpu-strict-batch-draft cpu-strict-draft ctx-checkpoints ctx-size defrag-thold device device-draft dflash
diffusion-add-gumbel-noise diffusion-alg-temp diffusion-algorithm diffusion-block-length diffusion-cfg-scale
diffusion-eps diffusion-steps diffusion-visual display-prompt docker-repo draft draft-max draft-min draft-n
draft-n-min draft-p-min draft-p-split eagle3 embd-gemma-default embd-normalize embd-output-format embd-separator
embedding embeddings epochs escape file fim-qwen-14b-spec fim-qwen-30b-default fim-qwen-3b-default
fim-qwen-7b-default fim-qwen-7b-spec fit fit-ctx fit-print fit-target flash-attn from-chunk gpt-oss-120b-default
gpt-oss-20b-default gpu-layers gpu-layers-draft grp-attn-n grp-attn-w hellaswag hellaswag-tasks help hf-file
hf-repo hf-repo-draft hf-token host image image-max-tokens image-min-tokens in-prefix in-prefix-bos in-suffix
interactive interactive-first jinja keep kl-divergence kl-divergence-base kv-offload kv-unified
kv-unified-per-slot lazy-mode learning-rate learning-rate-decay-epochs learning-rate-min list-devices load-mode
load-on-startup log-colors log-disable log-file log-jsonl log-prefix log-prompts-dir log-timestamps log-verbose
log-verbosity logits-output-dir lookup-cache-dynamic lookup-cache-static lora lora-init-without-apply lora-scaled
main-gpu mcp-servers-config mcp-servers-json media-path method metrics mlock mmap mmproj mmproj-auto
mmproj-device mmproj-offload mmproj-url model model-draft model-url models-autoload models-dir models-max
models-preset moe-cache-mib mtmd-batch-max-tokens mtp multiline-input multiple-choice multiple-choice-tasks
n-cpu-ffn n-cpu-moe n-cpu-moe-draft n-gpu-layers n-gpu-layers-draft negative-file nextn no-agent no-bos
no-cache-idle-slots no-cache-prompt no-cont-batching no-context-shift no-conversation no-cors-credentials
no-display-prompt no-escape no-host no-jinja no-kv-offload no-kv-unified no-log-jsonl no-log-prefix
no-log-timestamps no-mmap no-mmproj no-mmproj-auto no-mmproj-offload no-models-autoload no-op-offload
no-parse-special no-perf no-ppl no-prefill-assistant no-reasoning-preserve no-repack no-show-timings
no-skip-chat-parsing no-slots no-spec-draft-backend-sampling no-ui no-ui-mcp-proxy no-warmup no-webui
no-webui-mcp-proxy numa offline op-offload optimizer output output-file output-format output-frequency
override-kv override-tensor override-tensor-draft parallel parse-special path pca-batch pca-iter perf poll
poll-batch poll-batch-draft poll-draft pooling port pos positive-file ppl ppl-output-type ppl-stride
prefill-assistant print-token-count prio prio-batch prio-batch-draft prio-draft process-output prompt
prompt-cache prompt-cache-all prompt-cache-ro props reasoning reasoning-budget reasoning-budget-message
reasoning-effort reasoning-format reasoning-preserve repack rerank reranking reuse-port rope-freq-base
rope-freq-scale rope-scale rope-scaling rpc save-all-logits save-frequency save-logits sequences server-base
show-count show-statistics show-timings simple-io single-turn skip-chat-parsing sleep-idle-seconds
slot-prompt-similarity slot-save-path slots spec-default spec-draft-backend-sampling spec-draft-cpu-mask
spec-draft-cpu-mask-batch spec-draft-cpu-moe spec-draft-cpu-range spec-draft-cpu-range-batch
spec-draft-cpu-strict spec-draft-cpu-strict-batch spec-draft-device spec-draft-hf spec-draft-model
spec-draft-n-cpu-moe spec-draft-n-max spec-draft-n-min spec-draft-ncmoe spec-draft-ngl spec-draft-override-tensor
spec-draft-p-min spec-draft-p-split spec-draft-poll spec-draft-poll-batch spec-draft-prio spec-draft-prio-batch
spec-draft-sampling spec-draft-threads spec-draft-threads-batch spec-draft-type-k spec-draft-type-v
spec-ngram-map-k-min-hits spec-ngram-map-k-size-m spec-ngram-map-k-size-n spec-ngram-map-k4v-min-hits
spec-ngram-map-k4v-size-m spec-ngram-map-k4v-size-n spec-ngram-min-hits spec-ngram-mod-n-match
spec-ngram-mod-n-max spec-ngram-mod-n-min spec-ngram-simple-min-hits spec-ngram-simple-size-m
spec-ngram-simple-size-n spec-ngram-size-m spec-ngram-size-n spec-synth-len spec-synth-rates spec-type special
split-mode spm-infill sse-ping-interval ssl-cert-file ssl-key-file stop-timeout swa-checkpoints swa-full
system-prompt-file tags tensor-filter tensor-split threads threads-batch threads-batch-draft threads-draft
threads-http timeout tools tools-runtime tts-lang tts-speaker-file ubatch-size ui ui-config ui-config-file
ui-mcp-proxy val-split verbose verbose-prompt verbosity version video video-ffmpeg-dir video-fps
video-timestamp-interval vision-gemma-12b-default vision-gemma-4b-default warmup webui webui-config
webui-config-file webui-mcp-proxy weight-decay winogrande winogrande-tasks yarn-attn-factor yarn-beta-fast
yarn-beta-slow yarn-ext-factor yarn-orig-ctx
"""

_SHORT = """
a b bs c C cb cd cl cmoe cmoed cnv co cpent cram Cr Crb ctk ctkd ctv ctvd ctxcp dev devd dr dt e f fa fit fitc
fitp fitt gan gaw h hf hfd hff hffv hfr hfrd hfrv hft hfv i if kvo kvu lcd lcs lm lv lzm m md mg mm mmu mu mv
ncffn ncmoe ncmoed ngl ngld nkvo no-kvu nocb np nr ot otd p rea sm sp sps st sysf t tb tbd td to ts ub v
"""

# What its model presets know beside the options of the command line.
SILENT_OPTIONS = frozenset([*_LONG.split(), *_SHORT.split()])

SILENT_VARIABLES = ("LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_LOG_", "LLAMA_CACHE", "HF_TOKEN", "MODEL_ENDPOINT")
"""How the environment names begin that an INI file may use instead."""
