"""What a new document takes away from clients of an old one. Pure."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_UPPER = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum")
_LOWER = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum")
_VERBS = ("get", "put", "post", "delete", "patch")


def breaks(old: Schema, new: Schema) -> list[str]:
    """One line for each path, field, tag or value that is gone, and each limit that is tighter."""
    return sorted(set(_Comparison(old, new).lines()))


class _Comparison:
    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()

    def lines(self) -> Iterator[str]:
        for path, item in self._old["paths"].items():
            found = self._new["paths"].get(path, {})
            for verb in filter(item.__contains__, _VERBS):
                where = f"{verb.upper()} {path}"
                if verb in found:
                    yield from self._operation(where, item[verb], found[verb])
                else:
                    yield f"{where}: is gone"

    def _operation(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        parameters = {(one["in"], one["name"]): one for one in new.get("parameters", ())}
        known = {(one["in"], one["name"]) for one in old.get("parameters", ())}
        for one in old.get("parameters", ()):
            place = f"{where} {one['name']}"
            found = parameters.get((one["in"], one["name"]))
            if found is None:
                yield f"{place}: is gone"
            else:
                yield from self._schema(place, one["schema"], found["schema"], sent=True)
        for key in parameters.keys() - known:
            if parameters[key].get("required"):
                yield f"{where} {key[1]}: is newly required"
        if "requestBody" in old:
            yield from self._contents(where, old["requestBody"], new.get("requestBody", {}), True)
        yield from self._contents(where, old["responses"]["200"], new["responses"]["200"], False)

    def _contents(self, where: str, old: Schema, new: Schema, sent: bool) -> Iterator[str]:
        for kind, content in old["content"].items():
            found = new.get("content", {}).get(kind)
            if found is None:
                yield f"{where}: {kind} is gone"
            else:
                yield from self._schema(where, content["schema"], found["schema"], sent=sent)

    def _schema(self, where: str, old: Schema, new: Schema, *, sent: bool) -> Iterator[str]:
        if "$ref" in old and "$ref" in new:
            pair = old["$ref"], new["$ref"]
            if pair in self._seen:
                return
            self._seen.add(pair)
            where = old["$ref"].rpartition("/")[2]
        old, new = _resolved(self._old, old), _resolved(self._new, new)
        if not old or not new:  # anything is allowed on one side
            if sent and not old and new:
                yield f"{where}: is narrower"
            return
        yield from _values(where, old, new)
        if sent:
            yield from _limits(where, old, new)
        yield from self._members(where, old, new, sent)
        yield from self._alternatives(where, old, new, sent)
        for key in ("items", "additionalProperties"):
            before, after = _schema_at(old, key), _schema_at(new, key)
            if before is not None and after is not None:
                yield from self._schema(f"{where}[]", before, after, sent=sent)

    def _members(self, where: str, old: Schema, new: Schema, sent: bool) -> Iterator[str]:
        for name, schema in old.get("properties", {}).items():
            found = new.get("properties", {}).get(name)
            if found is None:
                yield f"{where}.{name}: is gone"
            else:
                yield from self._schema(f"{where}.{name}", schema, found, sent=sent)
        before, after = set(old.get("required", ())), set(new.get("required", ()))
        changed = after - before if sent else before - after
        what = "is newly required" if sent else "may be absent now"
        for name in changed & (set(old.get("properties", {})) | after):
            if sent or name in new.get("properties", {}):
                yield f"{where}.{name}: {what}"

    def _alternatives(self, where: str, old: Schema, new: Schema, sent: bool) -> Iterator[str]:
        tags, found = _mapping(old), _mapping(new)
        for tag, reference in tags.items():
            if tag not in found:
                yield f"{where}: the tag {tag} is gone"
            else:
                pair = {"$ref": reference}, {"$ref": found[tag]}
                yield from self._schema(f"{where} {tag}", *pair, sent=sent)
        for before in old.get("anyOf", ()):
            same = [one for one in new.get("anyOf", [new]) if _kind(one) == _kind(before)]
            if not same:
                yield f"{where}: {_kind(before)} is not allowed any more"
            else:
                yield from self._schema(where, before, same[0], sent=sent)


def _resolved(document: Schema, schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]


def _schema_at(schema: Schema, key: str) -> Schema | None:
    """A schema below another; `additionalProperties` may also be a boolean."""
    found = schema.get(key)
    return None if found is None or isinstance(found, bool) else found


def _values(where: str, old: Schema, new: Schema) -> Iterator[str]:
    if "const" in old and old["const"] != new.get("const"):
        yield f"{where}: is no longer {old['const']}"
    for gone in set(old.get("enum", ())) - set(new.get("enum", old.get("enum", ()))):
        yield f"{where}: the value {gone} is gone"
    before, after = _types(old), _types(new)
    if before and after and not before <= after:
        yield f"{where}: {', '.join(sorted(before - after))} is not allowed any more"


def _limits(where: str, old: Schema, new: Schema) -> Iterator[str]:
    for word in _UPPER:
        if word in new and (word not in old or new[word] < old[word]):
            yield f"{where}: {word} is tighter, {new[word]} instead of {old.get(word, 'none')}"
    for word in _LOWER:
        if word in new and new[word] > old.get(word, float("-inf")):
            yield f"{where}: {word} is tighter, {new[word]} instead of {old.get(word, 'none')}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{where}: the pattern is another one"
    if "enum" in new and "enum" not in old:
        yield f"{where}: only certain values are allowed now"


def _types(schema: Schema) -> set[str]:
    found = schema.get("type", ())
    return {found} if isinstance(found, str) else set(found)


def _kind(schema: Schema) -> str:
    """What tells one of several alternatives from the others."""
    return str(schema.get("type") or ("reference" if "$ref" in schema else "tagged"))


def _mapping(schema: Schema) -> dict[str, str]:
    found: dict[str, str] = schema.get("discriminator", {}).get("mapping", {})
    return found
