"""Where satwatch attaches to trainers: one thin module a trainer, and what they share.

A hook puts per-token radii where the trainer's own loss has its scalar epsilons, runs that loss, and takes them out
again. It copies no loss, and a module is imported only by those who use its trainer.
"""

from satwatch.hooks.core.attachment import Attachment
from satwatch.hooks.core.radii import ClipRadii
from satwatch.hooks.core.settings import use

__all__ = ["Attachment", "ClipRadii", "use"]
