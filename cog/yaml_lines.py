"""Lines of YAML: a text and the keys of a value go in, the number of its line comes out."""

import yaml


def find_line(text: str, keys: tuple[str, ...]) -> int | None:
    """Find where a value stands, or the nearest mapping around a missing one.

    :param text: YAML that could be read.
    :param keys: What leads to the value.
    :returns: The line, counted from 1; None if not even the first key is there.
    """
    node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
    for key in keys:
        pair = _find_pair(node, key)
        if pair is None:
            break
        line, node = pair[0].start_mark.line + 1, pair[1]
    return line


def _find_pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    for name, value in reversed(node.value):  # of a key that stands twice, the last one counts
        if name.value == key:
            return name, value
    for name, value in node.value:
        if name.tag == "tag:yaml.org,2002:merge":
            for each in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if (pair := _find_pair(each, key)) is not None:
                    return pair
    return None
