"""Settings that a search space may not have: autotune's own, those that open the server, and secrets."""

import re

_ADDRESS = "autotune decides where its trial servers listen, always on 127.0.0.1"
_FLAGS = {
    flag: reason
    for reason, flags in {
        _ADDRESS: "host port uds grpc grpc-port root-path data-parallel-supervisor-port",
        "autotune speaks plain HTTP with its trial servers, on 127.0.0.1": (
            "ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs ssl-ciphers enable-ssl-refresh"
        ),
        "the model is named on autotune's command line": "model model-tag served-model-name",
        "it would take settings from a file that autotune does not see": "config",
        "it would put other code between autotune and the server": "middleware",
        "autotune's requests carry no key, and it never stores one": "api-key",
        "autotune never stores a secret: set HF_TOKEN in your environment": "hf-token",
        "autotune tunes servers of one machine": (
            "headless nnodes node-rank master-addr master-port data-parallel-address data-parallel-rpc-port"
            " data-parallel-rank data-parallel-start-rank data-parallel-hybrid-lb data-parallel-external-lb"
            " data-parallel-multi-port-external-lb"
        ),
        "it starts no server": "help version",
    }.items()
    for flag in flags.split()
}
_ENV = {
    "VLLM_HOST_IP": _ADDRESS,
    "VLLM_LOOPBACK_IP": _ADDRESS,
    "VLLM_PORT": _ADDRESS,
    "TMPDIR": "autotune gives every trial a scratch directory of its own",
}
_SECRET = re.compile(r"(^|_)(API_?KEYS?|KEY|TOKEN|SECRETS?|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")


def refused_flag(flag: str) -> str | None:
    """Why `flag`, in its long form with the dashes, may not be set; None when it may.

    argparse takes the beginning of a flag for the flag where no other begins so, `--hos` for `--host`; such
    beginnings are refused as well.
    """
    name = flag.removeprefix("--")
    if name in _FLAGS:
        return _FLAGS[name]
    for refused, reason in _FLAGS.items():
        if refused.startswith(name):
            return f"vLLM may read it as --{refused}: {reason}"
    return None


def refused_env(name: str) -> str | None:
    """Why the variable `name` may not be set; None when it may."""
    if name.upper().startswith("AUTOTUNE_"):
        return "variables with this beginning are autotune's own"
    if _SECRET.search(name.upper()):
        return "it looks like a secret: set it in your environment; autotune never stores it"
    return _ENV.get(name)
