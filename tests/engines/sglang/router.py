"""Run a real sglang-router in front of workers: ``router.py PORT METRICS_PORT WORKER_URL...``; SIGTERM ends it.

The package's own launcher imports parts of an older SGLang; this is what is below it.
"""

from __future__ import annotations

import sys

from sglang_router.router import Router
from sglang_router.router_args import RouterArgs

if __name__ == "__main__":
    port, metrics_port, *workers = sys.argv[1:]
    arguments = RouterArgs(host="127.0.0.1", port=int(port), prometheus_port=int(metrics_port), worker_urls=workers)
    Router.from_args(arguments).start()
