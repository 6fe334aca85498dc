"""Set every field of every message of the wire contract, and take each message through bytes and back.

A program of its own, so that it runs once under each protobuf release. It prints one JSON object: the release, and for
each message its bytes, whether they came back as the same message, and the fields that stayed unset.
"""

from __future__ import annotations

import itertools
import json

import google.protobuf
from google.protobuf.descriptor import FieldDescriptor

from satwatch.v1 import satwatch_pb2, satwatch_pb2_grpc

ALTERNATIVES = 2  # the most that a oneof of the contract offers


def is_repeated(field):
    # protobuf 7 has is_repeated only, protobuf 4 and 5 have label only.
    return field.is_repeated if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def is_chosen(field, alternative):
    group = field.containing_oneof
    return group is None or group.fields.index(field) == alternative % len(group.fields)


def value_of(field, number):
    """Return a value that is not the field's default and that no other field has."""
    return {
        FieldDescriptor.TYPE_BOOL: True,
        FieldDescriptor.TYPE_BYTES: str(number).encode(),
        FieldDescriptor.TYPE_DOUBLE: number + 0.5,
        FieldDescriptor.TYPE_ENUM: field.enum_type and field.enum_type.values[-1].number,
        FieldDescriptor.TYPE_STRING: str(number),
    }.get(field.type, number)


def fill(message, alternative, numbers):
    for field in message.DESCRIPTOR.fields:
        if not is_chosen(field, alternative):
            continue
        held = getattr(message, field.name)
        if field.message_type is None and not is_repeated(field):
            setattr(message, field.name, value_of(field, next(numbers)))
        elif field.message_type is None:
            held.extend(value_of(field, next(numbers)) for _ in range(2))
        elif field.message_type.GetOptions().map_entry:
            fill_entry(held, field.message_type.fields_by_name, alternative, numbers)
        else:
            fill(held.add() if is_repeated(field) else held, alternative, numbers)
            if not is_repeated(field):
                held.SetInParent()
    return message


def fill_entry(held, parts, alternative, numbers):
    key = value_of(parts["key"], next(numbers))
    if parts["value"].message_type is None:
        held[key] = value_of(parts["value"], next(numbers))
    else:
        fill(held[key], alternative, numbers)


def unset(message, alternative):
    found = {field.name for field, _ in message.ListFields()}
    return sorted(f.name for f in message.DESCRIPTOR.fields if is_chosen(f, alternative) and f.name not in found)


def report(name, alternative):
    message = fill(getattr(satwatch_pb2, name)(), alternative, itertools.count(1))
    data = message.SerializeToString(deterministic=True)
    return {
        "bytes": data.hex(),
        "same": type(message).FromString(data) == message,
        "unset": unset(message, alternative),
    }


def main():
    assert satwatch_pb2_grpc.SatwatchServiceStub  # the service's code loads as well
    names = satwatch_pb2.DESCRIPTOR.message_types_by_name
    messages = {f"{name}/{n}": report(name, n) for name in names for n in range(ALTERNATIVES)}
    print(json.dumps({"release": google.protobuf.__version__, "messages": messages}))  # noqa: T201


if __name__ == "__main__":
    main()
