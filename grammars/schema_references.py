"""The references of a JSON Schema: identifiers, anchors and JSON pointers, as RFC 3986 and RFC 6901 define them.

llguidance accepts fewer forms of references than JSON Schema has. So each reference is resolved here, and is
replaced by ``#`` and the JSON pointer of its target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin

from ..common.text import nearest_name
from .errors import GrammarError


class SchemaPart(NamedTuple):
    """A schema inside another schema."""

    pointer: str  # JSON pointer of the inner schema; empty for the complete schema
    schema: dict[str, Any]


def escape_pointer_token(token: str) -> str:
    """Return a key as it is written in a JSON pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def _unescape_pointer_token(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


_INDEX = re.compile(r"0|[1-9][0-9]*")


class _NoTargetError(Exception):
    """A JSON pointer without a target. Its text is a similar pointer that has one; empty if there is none."""


def _follow_pointer(start_pointer: str, node: Any, pointer: str) -> tuple[str, Any]:
    """Return the target of a JSON pointer, and its pointer from the root. Raises ``_NoTargetError``."""
    target_pointer = start_pointer
    for token in map(_unescape_pointer_token, pointer.split("/")[1:]):
        if isinstance(node, dict) and token in node:
            node = node[token]
        elif isinstance(node, list) and _INDEX.fullmatch(token) and int(token) < len(node):
            node = node[int(token)]
        else:
            nearest = nearest_name(token, node) if isinstance(node, dict) and target_pointer else None
            raise _NoTargetError(f"{target_pointer}/{escape_pointer_token(nearest)}" if nearest else "")
        target_pointer += f"/{escape_pointer_token(token)}"
    return target_pointer, node


def find_target(root: dict[str, Any], reference: str) -> SchemaPart | None:
    """Return the target of a reference that `References.rewrite` has written."""
    # Returns None if the target is true or false, and for a reference in a definition that nothing refers to,
    # which has not been rewritten.
    pointer = unquote(reference[1:])
    if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
        return None
    try:
        pointer, target = _follow_pointer("", root, pointer)
    except _NoTargetError:
        return None
    return SchemaPart(pointer, target) if isinstance(target, dict) else None


class _Resource(NamedTuple):
    """A schema with an identifier, or the complete schema."""

    uri: str  # the identifier, absolute if possible; empty if there is none
    pointer: str  # JSON pointer of the schema from the root
    schema: dict[str, Any]


_VALUES_WITHOUT_SCHEMAS = ("const", "enum", "default", "examples", "example")


class References:
    def __init__(self, root: dict[str, Any]) -> None:
        self._root = _Resource(_absolute_uri("", _identifier(root)), "", root)
        self._resources = {self._root.uri: self._root}
        self._resource_of_node: dict[int, _Resource] = {}
        self._anchors: dict[tuple[str, str], tuple[str, Any]] = {}  # (pointer, schema), by (URI, name)
        self._dynamic_anchor_counts: dict[str, int] = {}
        self._recursive_anchor_count = 0
        self._ids_without_cycle: set[int] = set()
        self._targets: dict[int, Any] = {}  # targets of rewritten references, by the id of the schema
        for pointer, node, resource in _walk_with_resources(self._root):
            self._resource_of_node[id(node)] = resource
            self._resources.setdefault(resource.uri, resource)
            self._add_anchors(pointer, node, resource)

    def _add_anchors(self, pointer: str, node: dict[str, Any], resource: _Resource) -> None:
        legacy_names = [_identifier(node)[1:]] if _identifier(node).startswith("#") else []
        for name in (node.get("$anchor"), node.get("$dynamicAnchor"), *legacy_names):
            if isinstance(name, str):
                self._anchors.setdefault((resource.uri, name), (pointer, node))
        dynamic_name = node.get("$dynamicAnchor")
        if isinstance(dynamic_name, str):
            self._dynamic_anchor_counts[dynamic_name] = self._dynamic_anchor_counts.get(dynamic_name, 0) + 1
        self._recursive_anchor_count += node.get("$recursiveAnchor") is True

    def rewrite(self, part: SchemaPart) -> None:
        """Replace the part's reference by ``#`` and the JSON pointer of its target."""
        # A dynamic reference that can have one target only becomes ``$ref``; other ones are not changed. Raises
        # ``GrammarError`` for a reference without a target, and for one that leads back to itself.
        schema = part.schema
        for keyword in ("$dynamicRef", "$recursiveRef"):
            reference = schema.get(keyword)
            if isinstance(reference, str) and self._has_one_target(keyword, reference):
                self._resolve(reference, part, keyword)
                del schema[keyword]
                if "$ref" in schema:
                    schema["allOf"] = [*schema.get("allOf", []), {"$ref": reference}]
                    self._resource_of_node[id(schema["allOf"][-1])] = self._resource_of(schema)
                else:
                    schema["$ref"] = reference
        if isinstance(schema.get("$ref"), str):
            pointer, target = self._resolve(schema["$ref"], part)
            self._check_cycle(part, target)
            schema["$ref"] = f"#{quote(pointer, safe='/~')}"
            self._targets[id(schema)] = target

    def target(self, schema: dict[str, Any]) -> Any:
        """Return the target of a schema's ``$ref``; None if there is no such target."""
        if id(schema) in self._targets:
            return self._targets[id(schema)]
        reference = schema.get("$ref")
        try:
            return self._resolve(reference, SchemaPart("", schema))[1] if isinstance(reference, str) else None
        except GrammarError:  # `rewrite` reports it with the path
            return None

    def _has_one_target(self, keyword: str, reference: str) -> bool:
        if keyword == "$recursiveRef":
            return self._recursive_anchor_count == 0 or len(self._resources) == 1
        return self._dynamic_anchor_counts.get(unquote(reference.partition("#")[2]), 0) <= 1

    def _resource_of(self, schema: dict[str, Any]) -> _Resource:
        return self._resource_of_node.get(id(schema), self._root)

    def _check_cycle(self, part: SchemaPart, target: Any) -> None:
        visited_ids: set[int] = set()
        while isinstance(target, dict) and id(target) not in self._ids_without_cycle:
            if target is part.schema or id(target) in visited_ids:
                raise GrammarError(
                    f"{part.pointer}/$ref: {part.schema['$ref']!r} leads back to itself, so it describes no JSON"
                )
            visited_ids.add(id(target))
            target = self.target(target)
        self._ids_without_cycle |= visited_ids

    def _resolve(self, reference: str, part: SchemaPart, keyword: str = "$ref") -> tuple[str, Any]:
        """Return the target of a reference, with its JSON pointer. Raises ``GrammarError``."""
        path = f"{part.pointer}/{keyword}"
        uri, _, fragment = reference.partition("#")
        resource = self._find_resource(reference, uri, part, path) if uri else self._resource_of(part.schema)
        similar_pointer = ""
        # A pointer that an inner resource does not have can mean the complete schema only. A key that is not
        # percent-encoded may contain a percent sign.
        for start in (resource,) if uri or resource is self._root else (resource, self._root):
            for name in dict.fromkeys((unquote(fragment), fragment)):
                try:
                    target = self._find(start, name)
                except _NoTargetError as error:
                    similar_pointer = similar_pointer or str(error)
                    continue
                if not isinstance(target[1], dict | bool):
                    raise GrammarError(
                        f"{path}: the target of {reference!r} is not a schema, which must be an "
                        "object, true or false"
                    )
                return target
        hint = f"; did you mean #{similar_pointer}?" if similar_pointer else ""
        is_anchor = fragment and not fragment.startswith("/")
        what = f"anchor {fragment!r}" if is_anchor else repr(reference)
        raise GrammarError(f"{path}: the schema has no {what}{hint}")

    def _find_resource(self, reference: str, uri: str, part: SchemaPart, path: str) -> _Resource:
        base = self._resource_of(part.schema).uri
        resource = self._resources.get(_absolute_uri(base, uri)) or self._resources.get(uri)
        if resource is None:
            raise GrammarError(
                f"{path}: {reference!r} is another document; only this schema is read, so put the "
                "definition into its $defs"
            )
        return resource

    def _find(self, resource: _Resource, name: str) -> tuple[str, Any]:
        """Return the target of a fragment, with its JSON pointer. Raises ``_NoTargetError``."""
        if not name:
            return resource.pointer, resource.schema
        if name.startswith("/"):
            return _follow_pointer(resource.pointer, resource.schema, name)
        target = self._anchors.get((resource.uri, name))
        if target is None:
            raise _NoTargetError
        return target


def _identifier(schema: Mapping[str, Any]) -> str:
    """Return the identifier of a schema, ``id`` in draft 4; empty if there is none."""
    name = schema.get("$id", schema.get("id"))
    return name if isinstance(name, str) else ""


def _absolute_uri(base: str, uri: str) -> str:
    """Return a URI relative to a base, without its fragment."""
    uri = uri.partition("#")[0]
    try:
        return urljoin(base, uri) if uri else base
    except ValueError:  # such as brackets without an IPv6 address
        return uri


def _walk_with_resources(root: _Resource) -> Iterator[tuple[str, dict[str, Any], _Resource]]:
    """Yield all objects that may be schemas, each with its JSON pointer and the schema that identifies it."""
    remaining: list[tuple[str, Any, _Resource]] = [("", root.schema, root)]
    while remaining:
        pointer, node, resource = remaining.pop()
        if isinstance(node, dict):
            identifier = _identifier(node)
            if node is not root.schema and identifier.partition("#")[0]:
                resource = _Resource(_absolute_uri(resource.uri, identifier), pointer, node)
            yield pointer, node, resource
            remaining += (
                (f"{pointer}/{escape_pointer_token(key)}", value, resource)
                for key, value in node.items()
                if key not in _VALUES_WITHOUT_SCHEMAS or isinstance(value, dict)
            )
        elif isinstance(node, list):
            remaining += ((f"{pointer}/{index}", item, resource) for index, item in enumerate(node))
