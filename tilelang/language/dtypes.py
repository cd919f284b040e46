"""Dtypes: one class, `DType`, a string with the numpy-style name that is also callable as a cast.

`IR_NAME` is the Python side of the DTYPE lines of src/ir/types.def; test/python checks the two against each other.
"""

IR_NAME = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int4": "i4x2",  # an element of the core is a byte with two: the printer halves the last dimension
}

OF_IR = {ir: name for name, ir in IR_NAME.items()}

_BITS = {"bool": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "bfloat16": 16}

# Other spellings of the same dtypes: C, torch, short and historical names.
_ALIAS = {
    "float": "float32",
    "fp32": "float32",
    "f32": "float32",
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "bool_": "bool",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3_float8": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
    "e5m2": "float8_e5m2",
    "tfloat32": "float32",  # the cube multiplies float32 in full
    "tf32": "float32",
}
_ALIAS["int4b_t"] = _ALIAS["i4"] = "int4"
for _long, _short in IR_NAME.items():
    _ALIAS.setdefault(_short, _long)


class DType(str):
    """A dtype by its name. `T.float16(x)` converts a value; `DType(...)` takes strings and others' dtypes."""

    __slots__ = ()

    def __new__(cls, dtype="float32"):
        if type(dtype) is cls:
            return dtype
        name = _name_of(dtype)
        found = _MADE.get(name)
        if found is None:
            found = _MADE[name] = str.__new__(cls, name)
        return found

    @property
    def ir(self):
        """The name in IR text."""
        return IR_NAME[self]

    @property
    def bits(self):
        return _BITS.get(self) or int("".join(c for c in self if c.isdigit()))

    @property
    def itemsize(self):
        """Bytes of an element; of int4, two of which share a byte, 1."""
        return max(self.bits // 8, 1)

    bytes = itemsize

    def as_torch(self):
        """The same dtype of torch."""
        import torch

        return getattr(torch, str(self))

    @property
    def is_float(self):
        return "float" in self

    @property
    def is_int(self):
        return "int" in self

    def __call__(self, *value):
        from ..frontend.expr import cast

        if len(value) != 1:
            from ..errors import fail

            given = f"{len(value)} values" if value else "no value"
            fail(1004, f"{self!r} converts one value, not {given}",
                 fix=f"{self!r}(x); a variable is T.alloc_var({str(self)!r})")  # fmt: skip
        return cast(value[0], self)

    def __repr__(self):
        return f"T.{str(self)}"

    # a str subclass must keep str's comparison, but accept the other spellings too: T.float32 == "float"
    def __eq__(self, other):
        if isinstance(other, str) and not isinstance(other, DType):
            other = _ALIAS.get(other, other)
        return str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self):
        return (DType, (str(self),))


_MADE = {}


def _name_of(dtype):
    if isinstance(dtype, str):
        name = str(dtype)
    elif dtype is float:
        name = "float32"
    elif dtype is int:
        name = "int32"
    elif dtype is bool:
        name = "bool"
    else:
        name = str(dtype)
        if name.startswith("torch."):
            name = name[6:]
        elif dtype is None or isinstance(dtype, (int, float, list, tuple)):
            from ..errors import fail

            fix = "'float16' or another name" if dtype is None else (
                "a name such as 'float16'; the sizes of a shape before it stand together, (m, n)")  # fmt: skip
            fail(1003, f"{dtype!r} is given where a dtype belongs", fix=fix)
        elif name not in IR_NAME:
            import numpy

            try:
                name = numpy.dtype(dtype).name
            except (TypeError, ValueError):
                name = getattr(dtype, "__name__", name)
    name = _ALIAS.get(name, name)
    if name not in IR_NAME:
        from ..errors import fail, nearest

        known = list(IR_NAME) + list(_ALIAS)
        near = {"float64": "float32", "double": "float32"}.get(name) or nearest(name, known)
        fail(
            1003,
            f"'{name}' is not a dtype of this compiler",
            fix=f"use one of {', '.join(IR_NAME)}" if not near else f"did you mean '{near}'?",
        )
    return name


float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
int8 = DType("int8")
int16 = DType("int16")
int32 = DType("int32")
int64 = DType("int64")
uint8 = DType("uint8")
uint16 = DType("uint16")
uint32 = DType("uint32")
uint64 = DType("uint64")
bool_ = DType("bool")
float8_e4m3fn = float8_e4m3 = DType("float8_e4m3fn")
float8_e5m2 = DType("float8_e5m2")
int4 = DType("int4")
half = float16
tfloat32 = float32


def numpy_dtype(dtype):
    """The numpy dtype object; bfloat16, the 8-bit floats and int4 (one a byte) come from ml_dtypes."""
    import numpy

    dtype = DType(dtype)
    if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"):
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, str(dtype)))
    return numpy.dtype(str(dtype))
