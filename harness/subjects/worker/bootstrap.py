"""What a worker's interpreter is started with (`python -c`): makes these packages importable, and serves.

They are loaded from their own folders, and no folder goes on the path: what lies beside them here would take the place
of what the other environment has. Uses nothing but the standard library.
"""

import importlib.util
import json
import os
import sys


def _serve() -> None:
    settings = json.loads(sys.argv[1])
    sys.path[:0] = settings["paths"]
    for name, init in settings["packages"].items():
        spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[os.path.dirname(init)])
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    import torch

    from harness.subjects.worker.serve import main

    torch.set_num_threads(settings["threads"])
    main(settings["descriptor"])


if __name__ == "__main__":
    _serve()
