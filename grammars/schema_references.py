"""The references of a JSON Schema: identifiers, anchors and JSON pointers, as RFC 3986 and RFC 6901 define them.

llguidance accepts fewer forms of references than JSON Schema has. So each reference is replaced by ``#`` and the
JSON pointer of its target.
"""

from __future__ import annotations

import re
from collections import Counter
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


_ARRAY_INDEX = re.compile(r"0|[1-9][0-9]*")


class _NoTargetError(Exception):
    """A JSON pointer without a target. Its text is a similar pointer that has one; empty if there is none."""


class _Target(NamedTuple):
    """A value inside of the schema that a reference may lead to."""

    pointer: str  # JSON pointer of the value from the root
    value: Any  # not always a schema


def _follow_pointer(start: _Target, relative_pointer: str) -> _Target:
    """Return the target of a JSON pointer that begins at ``start``. Raises ``_NoTargetError``."""
    pointer, node = start
    for escaped_token in relative_pointer.split("/")[1:]:
        token = _unescape_pointer_token(escaped_token)
        if isinstance(node, dict) and token in node:
            node = node[token]
        elif isinstance(node, list) and _ARRAY_INDEX.fullmatch(token) and int(token) < len(node):
            node = node[int(token)]
        else:
            raise _NoTargetError(_similar_pointer(pointer, node, token))
        pointer += f"/{escape_pointer_token(token)}"
    return _Target(pointer, node)


def _similar_pointer(pointer: str, node: Any, missing_token: str) -> str:
    """Return the pointer of the value whose key is most similar to a missing key; empty if there is none."""
    is_root = not pointer
    if is_root or not isinstance(node, dict):
        return ""
    nearest = nearest_name(missing_token, node)
    return f"{pointer}/{escape_pointer_token(nearest)}" if nearest else ""


def find_target(root: dict[str, Any], reference: str) -> SchemaPart | None:
    """Return the target of a reference that `References.rewrite` has written."""
    # Returns None if the target is true or false, and for a reference that was not rewritten. References in unused
    # definitions are not rewritten.
    pointer = unquote(reference[1:])
    is_json_pointer = pointer == "" or pointer.startswith("/")
    if not reference.startswith("#") or not is_json_pointer:
        return None
    try:
        target = _follow_pointer(_Target("", root), pointer)
    except _NoTargetError:
        return None
    return SchemaPart(target.pointer, target.value) if isinstance(target.value, dict) else None


class _Resource(NamedTuple):
    """A schema with an identifier, or the complete schema."""

    uri: str  # the identifier, absolute if possible; empty if there is none
    pointer: str  # JSON pointer of the schema from the root
    schema: dict[str, Any]


_VALUES_WITHOUT_SCHEMAS = ("const", "enum", "default", "examples", "example")


class References:
    """The references of a schema, and the identifiers and anchors that they can name."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = _Resource(_absolute_uri("", _identifier(root)), "", root)
        self._resources = {self._root.uri: self._root}
        self._resource_of_node: dict[int, _Resource] = {}
        self._anchors: dict[tuple[str, str], _Target] = {}  # by the URI of the resource and the anchor's name
        self._dynamic_anchor_counts: Counter[str] = Counter()
        self._recursive_anchor_count = 0
        self._ids_without_cycle: set[int] = set()
        self._targets: dict[
            int, Any
        ] = {}  # targets of rewritten references, by the id of the schema with ``$ref``
        for part, resource in _walk_with_resources(self._root):
            self._resource_of_node[id(part.schema)] = resource
            self._resources.setdefault(resource.uri, resource)
            self._add_anchors(part.pointer, part.schema, resource)

    def _add_anchors(self, pointer: str, node: dict[str, Any], resource: _Resource) -> None:
        names = [node.get("$anchor"), node.get("$dynamicAnchor")]
        if _identifier(node).startswith("#"):  # an anchor in older drafts
            names.append(_identifier(node).removeprefix("#"))
        for name in names:
            if isinstance(name, str):
                self._anchors.setdefault((resource.uri, name), _Target(pointer, node))
        dynamic_name = node.get("$dynamicAnchor")
        if isinstance(dynamic_name, str):
            self._dynamic_anchor_counts[dynamic_name] += 1
        if node.get("$recursiveAnchor") is True:
            self._recursive_anchor_count += 1

    def rewrite(self, part: SchemaPart) -> None:
        """Replace the part's reference by ``#`` and the JSON pointer of its target."""
        # A dynamic reference that can have only one target becomes ``$ref``. Other dynamic references are not
        # changed. Raises ``GrammarError`` for a reference that has no target, or leads back to itself.
        schema = part.schema
        for keyword in ("$dynamicRef", "$recursiveRef"):
            reference = schema.get(keyword)
            if isinstance(reference, str) and self._has_one_target(keyword, reference):
                self._resolve(reference, part, keyword)
                del schema[keyword]
                if "$ref" in schema:
                    second_reference = {"$ref": reference}
                    schema["allOf"] = [*schema.get("allOf", []), second_reference]
                    self._resource_of_node[id(second_reference)] = self._resource_of(schema)
                else:
                    schema["$ref"] = reference
        if isinstance(schema.get("$ref"), str):
            target = self._resolve(schema["$ref"], part)
            self._check_cycle(part, target.value)
            schema["$ref"] = f"#{quote(target.pointer, safe='/~$')}"
            self._targets[id(schema)] = target.value

    def target(self, schema: dict[str, Any]) -> Any:
        """Return the target of a schema's ``$ref``; None if there is no such target."""
        if id(schema) in self._targets:
            return self._targets[id(schema)]
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return None
        try:
            return self._resolve(reference, SchemaPart("", schema)).value
        except GrammarError:  # `rewrite` reports it with the path
            return None

    def _has_one_target(self, keyword: str, reference: str) -> bool:
        if keyword == "$recursiveRef":
            return self._recursive_anchor_count == 0 or len(self._resources) == 1
        _, _, fragment = reference.partition("#")
        return self._dynamic_anchor_counts[unquote(fragment)] <= 1

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

    def _resolve(self, reference: str, part: SchemaPart, keyword: str = "$ref") -> _Target:
        """Return the target of a reference. Raises ``GrammarError``."""
        path = f"{part.pointer}/{keyword}"
        uri, _, fragment = reference.partition("#")
        resource = self._find_resource(reference, uri, part, path) if uri else self._resource_of(part.schema)
        resources = [resource]
        if not uri and resource is not self._root:  # the fragment may be one of the complete schema, too
            resources.append(self._root)
        names = dict.fromkeys([unquote(fragment), fragment])  # a key may have a percent sign that is not encoded
        similar_pointer = ""
        for searched_resource in resources:
            for name in names:
                try:
                    target = self._find(searched_resource, name)
                except _NoTargetError as error:
                    similar_pointer = similar_pointer or str(error)
                    continue
                if not isinstance(target.value, dict | bool):
                    raise GrammarError(
                        f"{path}: the target of {reference!r} is not a schema, which must be an "
                        "object, true or false"
                    )
                return target
        hint = f"; did you mean #{similar_pointer}?" if similar_pointer else ""
        is_anchor = fragment and not fragment.startswith("/")
        missing = f"anchor {fragment!r}" if is_anchor else repr(reference)
        raise GrammarError(f"{path}: the schema has no {missing}{hint}")

    def _find_resource(self, reference: str, uri: str, part: SchemaPart, path: str) -> _Resource:
        base = self._resource_of(part.schema).uri
        resource = self._resources.get(_absolute_uri(base, uri)) or self._resources.get(uri)
        if resource is None:
            raise GrammarError(
                f"{path}: {reference!r} is another document; only this schema is read, so put the "
                "definition into its $defs"
            )
        return resource

    def _find(self, resource: _Resource, name: str) -> _Target:
        """Return the target of a fragment: a JSON pointer, an anchor, or empty. Raises ``_NoTargetError``."""
        resource_target = _Target(resource.pointer, resource.schema)
        if not name:
            return resource_target
        if name.startswith("/"):
            return _follow_pointer(resource_target, name)
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


def _walk_with_resources(root: _Resource) -> Iterator[tuple[SchemaPart, _Resource]]:
    """Yield all objects that may be schemas, each with the resource that contains it."""
    remaining: list[tuple[str, Any, _Resource]] = [("", root.schema, root)]
    while remaining:
        pointer, node, resource = remaining.pop()
        if isinstance(node, dict):
            identifier = _identifier(node)
            has_uri = identifier != "" and not identifier.startswith("#")
            if has_uri and node is not root.schema:
                resource = _Resource(_absolute_uri(resource.uri, identifier), pointer, node)
            yield SchemaPart(pointer, node), resource
            for key, value in node.items():
                if key not in _VALUES_WITHOUT_SCHEMAS or isinstance(value, dict):
                    remaining.append((f"{pointer}/{escape_pointer_token(key)}", value, resource))
        elif isinstance(node, list):
            for index, item in enumerate(node):
                remaining.append((f"{pointer}/{index}", item, resource))
