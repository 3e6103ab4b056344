# SPDX-License-Identifier: Apache-2.0
"""attach()'s arguments as JSON, which a run passes to its workers:

    {"codec": {"name": "planes", "bits": 5}, "loss_bound": 0.1}
"""
import json


def hook_arguments(text):
    from spillway.torch.codecs import CODECS
    arguments = json.loads(text)
    if "codec" in arguments:
        fields = dict(arguments["codec"])
        arguments["codec"] = CODECS[fields.pop("name")](**fields)
    return arguments
