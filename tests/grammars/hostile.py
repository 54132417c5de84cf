"""Grammars that want too much, by name. ``python -m tests.grammars.hostile NAME`` asks one for a mask."""

import resource
import sys
import time

NESTED = 'root ::= "(" root ")" | x\n'
# Separate ranges: every second character.
EVERY_SECOND = "".join(chr(0x20000 + 2 * n) for n in range(100_000))


def chain(count, link, last='"a"'):
    """Rules r0, r1 …, each of which leads to the next; ``link`` is its body, with {} for the next one's name."""
    rules = (f"r{n} ::= {link.replace('{}', f'r{n + 1}')}\n" for n in range(count))
    return "".join(rules) + f"r{count} ::= {last}\n"


HOSTILE = {
    "groups 10,000 deep": lambda: "root ::= " + "(" * 10_000 + '"a"' + ")" * 10_000,
    "open groups": lambda: "root ::= " + "(" * 500_000,
    "lists in lists, as deep as they may be": lambda: NESTED + "x ::= " + "(" * 100 + '"a"' + ' "b")*' * 100,
    "a chain of 50,000 rules": lambda: "root ::= r0\n" + chain(50_000, "{}"),
    "a chain of 30,000 rules with text": lambda: NESTED + "x ::= r0\n" + chain(30_000, '{} "a"'),
    "a chain of 30,000 rules that come back": lambda: "root ::= r0\n" + chain(30_000, '"a" {} root?'),
    "a ring of 30,000 rules": lambda: "root ::= r0\n" + chain(30_000, '"a" {}', "r0"),
    "85,000 rules": lambda: "root ::= a\n" + "".join(f'{n}::=""\n' for n in range(85_000)) + 'a ::= "a"\n',
    "35,000 alternative rules": lambda: (
        "root ::= "
        + " | ".join(f"r{n}" for n in range(35_000))
        + "\n"
        + "".join(f'r{n} ::= "{n}"\n' for n in range(35_000))
    ),
    "30,000 alternative rules beside recursion": lambda: (
        NESTED
        + "x ::= "
        + " | ".join(f"r{n}" for n in range(30_000))
        + "\n"
        + "".join(f'r{n} ::= "{n}"\n' for n in range(30_000))
    ),
    "20,000 rules that come back": lambda: (
        "root ::= "
        + " | ".join(f"r{n}" for n in range(20_000))
        + "\n"
        + "".join(f'r{n} ::= "a" r{n} "b" | "{n}"\n' for n in range(20_000))
    ),
    "a count of 100,000": lambda: 'root ::= "a"{1,100000}',
    "a count of 100,000 in counts": lambda: 'root ::= (("a"{1,100000}){1,100000}){1,100000} "b"',
    "a count of 100,000 rules that come back": lambda: 'root ::= x{1,100000}\nx ::= "(" x ")" | "a"',
    "exactly 999,999": lambda: NESTED + 'x ::= ("a" | "ab"){999999} "b"',
    "stars on stars": lambda: 'root ::= ((((x*)*)*)*)*\nx ::= "a"',
    "stars on stars of what may be empty": lambda: 'root ::= ((((x*)*)*)*)*\nx ::= "a" x "b" |',
    "rules that double 40 times": lambda: "root ::= r0\n" + chain(40, "{} {}"),
    "rules that double 40 times beside recursion": lambda: NESTED + "x ::= r0\n" + chain(40, "{} {}"),
    "rules that double 40 times and may be empty": lambda: NESTED + "x ::= r0\n" + chain(40, "{} {}", '"a"?'),
    "rules that double 40 times and are empty": lambda: NESTED + "x ::= r0\n" + chain(40, "{} {}", '""'),
    "rules that double 40 times in alternatives": lambda: NESTED + "x ::= r0\n" + chain(40, '{} "a" | {} "b"'),
    "ambiguous": lambda: 'root ::= x\nx ::= "a" x x | "a"',
    "very ambiguous": lambda: 'root ::= x\nx ::= "a" x x x x | "a" x x | "a" x? x? x? x? x?',
    "a ring without an end": lambda: 'root ::= "a" x\nx ::= "b" y\ny ::= "c" x',
    "a ring of names": lambda: "root ::= x\nx ::= y\ny ::= x",
    "a literal of 1 MB": lambda: f'root ::= "{"a" * 990_000}"',
    "a literal of 1 MB beside recursion": lambda: NESTED + f'x ::= "{"a" * 990_000}"',
    "90,000 alternatives": lambda: "root ::= " + " | ".join(f'"{n}"' for n in range(90_000)),
    "90,000 alternatives beside recursion": lambda: (
        NESTED + "x ::= " + " | ".join(f'"{n}"' for n in range(90_000))
    ),
    "a class of 100,000 characters": lambda: f"root ::= [{EVERY_SECOND}]+",
    "a class of 20,000 ranges": lambda: f"root ::= [{EVERY_SECOND[:20_000]}]+",
    "600 classes of 10,000 ranges": lambda: (
        NESTED + "x ::= " + "c " * 599 + f"\nc ::= [{EVERY_SECOND[:10_000]}]\n"
    ),
    "a lexer of many states": lambda: NESTED + 'x ::= [ab]* "a" [ab]{1000} root?',
    "450,000 names": lambda: "root ::= " + "x " * 450_000 + '\nx ::= "a"',
    "450,000 names of what comes back": lambda: "root ::= " + "x " * 450_000 + '\nx ::= "(" x ")" | "a"',
    "1 MB of spaces": lambda: 'root ::= "a"' + " " * 990_000,
    "1 MB of lines": lambda: "\n" * 990_000 + "root ::= (",
    "100,000 names of nothing": lambda: "root ::= " + " ".join(f"q{n}" for n in range(100_000)),
    "too long": lambda: 'root ::= "a"' + " " * 1_000_000,
}


def main(name):
    from logitsmith.grammars import GrammarError, compile_grammar

    source = HOSTILE[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    try:
        outcome = f"{compile_grammar(source).start().mask().sum()} bytes may come first"
    except GrammarError as error:
        outcome = "GrammarError: " + error.message
    seconds = time.perf_counter() - start
    print(f"{seconds:.2f}\t{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024}\t{outcome}")


if __name__ == "__main__":
    main(sys.argv[1])
