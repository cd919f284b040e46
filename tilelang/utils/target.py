"""Which family of chips: A2, A3 or A5."""

import os
import types

# what a card calls itself -> family; the first that fits
_FAMILIES = (("910_93", "A3"), ("910C", "A3"), ("910B", "A2"), ("950", "A5"), ("910", "A2"))
_DEFAULT = "A3"


def determine_platform(platform="auto"):
    """The family of chips by its name; "auto" asks TL_PLATFORM, then the card that torch sees."""
    if platform and platform != "auto":
        return platform
    asked = os.environ.get("TL_PLATFORM")
    if asked:
        return asked
    try:
        import torch

        if torch.npu.is_available():
            name = str(torch.npu.get_device_properties(0).name)
            for part, family in _FAMILIES:
                if part.lower() in name.lower():
                    return family
    except (ImportError, AttributeError):
        pass
    return _DEFAULT


class Target:
    """The chip that kernels are compiled for, as programs ask for it: `kind.name` is "ascend", `arch` its family."""

    def __init__(self, target="auto"):
        self.kind = types.SimpleNamespace(name="ascend")
        self.arch = determine_platform()
        self.attrs = {"arch": self.arch}
        self.keys = ("ascend",)

    def __str__(self):
        return f"ascend -arch={self.arch}"


def determine_target(target="auto", return_object=False):
    """The target of this compiler, whatever is asked for: a string, or a Target."""
    found = Target(target)
    return found if return_object else str(found)


__all__ = ["Target", "determine_platform", "determine_target"]
