#!/usr/bin/env python3
"""Writes what Python's Jinja makes of small templates, in the environment that `transformers` gives chat templates.

    pip install transformers==5.23.0 jinja2==3.1.6
    make_cases.py

cases.json is a list of {"template", "variables" (if any), and "text" or "error"}. An error is Jinja's message; one of
syntax is null, as its words are the parser's own.
"""
import datetime
import json
import pathlib

import jinja2
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 7, 9, 5, 2)

ROWS = [{"role": "user", "n": 2}, {"role": "assistant", "n": 1}, {"role": "user", "n": 3, "x": None}]

# Groups of templates, each with its variables.
GROUPS = [
    # Text and white space around tags.
    ({"a": 1}, [
        "", "plain", "line\n", "line\n\n", "a\r\nb\rc\n", "{{ a }}\n{{ a }}\n", "{% if a %}\nx\n{% endif %}\ny\n",
        "  {% if a %}  \n  x\n  {% endif %}  y", "x  {% if a %}y{% endif %}", "x \n  {%- if a %} y {% endif -%}  \n z",
        "x \n  {%+ if a %} y {% endif +%}\n z", "a {{- a -}} b", "a\n {{ a }}", "a  {# note #}\n b", "  {# note #}\nb",
        "a {#- note -#} b", "{# note #}\n\nb", "{#-#}x", "{##}x", "{# {{ a }} {% if %} #}x", "a{#+ x +#}\nb",
        "{% raw %}\n  {{ a }} {% if %}{% endraw %}\nx", "a {%- raw -%} {{ a }} {%- endraw -%} b",
        "{%raw%}{%endraw%}", "  {% raw %}x\n  {% endraw %}\ny", "{ {{ a }} }", "{", "{a", "}}", "%}", "{{ '}}' }}",
        "{{ {'x': {'y': a}}['x']['y'] }}", "{{ {'x': {'y': a}} }}", "{% set x = {'a': {}} %}{{ x }}",
        "\t{% if a %}\tx{% endif %}", "\u00a0{% if a %}x{% endif %}", "{% if a -%}\n\u3000x{% endif %}",
        "{% for i in [1,2] %}\n- {{ i }}\n{% endfor %}\nend", "{%for i in [1]%}{{i}}{%endfor%}",
        "{% if a %}{% endif %}\n\n{% if a %}{% endif %}\n", "x{{ 'a\nb' }}y", "{{ a\n}}\n", "x\n{%- if a -%}\n\n{%- endif -%}\ny",
    ]),
    # Literals.
    ({}, [
        "{{ 1 }} {{ 1_000 }} {{ 0 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}", "{{ 1.5 }} {{ 1.0 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1E20 }}",
        "{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789012345.0 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1e22 }} {{ 5e-324 }}",
        "{{ true }} {{ True }} {{ false }} {{ False }} {{ none }} {{ None }}", "{{ 'a' 'b' \"c\" }}",
        "{{ 'it\\'s' }}{{ \"a\\\"b\" }}{{ '\\n\\t\\\\' }}", "{{ '\\x41\\u00e9\\U0001F332\\101\\q\\0' }}", "{{ 'é森🌲' }}",
        "{{ [1, 'a', none, [2], ] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ 1, 2 }} {{ [] }} {{ {} }}",
        "{{ {'a': 1, \"b\": [true], 3: 'x', } }}", "{{ {'a': 1, 'a': 2} }} {{ {1: 'x', true: 'y'} }}",
        "{{ ['it\\'s', 'a\"b', '\\'\"', 'a\\nb\\t\\\\', '\\x00\\x7f\\u200b', 'é森🌲\\u00a0'] }}",
        "{{ 9223372036854775807 }} {{ -9223372036854775807 }}", "{{ 1.e }}", "{{ 'x' }}{{ 'open }}",
        "{{ 1 if true }} {{ 1 if false }}| {{ 1 if false else 2 }} {{ 1 if false else 2 if false else 3 }}",
    ]),
    # Arithmetic and comparison.
    ({"s": "text", "l": [1, 2], "z": 0}, [
        "{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }}",
        "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1 + true }} {{ 1 - 2.5 }} {{ 3 * 1.5 }} {{ 4 / 2 }}",
        "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ - 3 + +2 }} {{ -z }} {{ --1 }}",
        "{{ 'a' + 'b' ~ 1 ~ none ~ true ~ 1.0 }} {{ 1 ~ (2 + 3) }}", "{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * 0 }} {{ 'x' * -1 }} {{ [1] * 2 }}",
        "{{ [1] + [2] }} {{ (1,) + (2,) }}", "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }}",
        "{{ [1, 2] < [1, 3] }} {{ (1,) < (1, 2) }} {{ 2 >= 2 }} {{ 2 <= 1 }} {{ 2 != 2 }} {{ 'é' > 'z' }}",
        "{{ 1 == '1' }} {{ none == none }} {{ [1, {'a': 2}] == [1.0, {'a': 2}] }} {{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ [1] == (1,) }}",
        "{{ 1 in l }} {{ 3 not in l }} {{ 'ex' in s }} {{ 'x' in {'x': 1} }} {{ '' in '' }} {{ 1 in u }} {{ not 1 in l }}",
        "{{ not true or true and false }} {{ 0 or 'x' }} {{ '' and 'x' }}| {{ 'a' and 'b' }} {{ none or z }} {{ not z }}",
        "{{ u == v }} {{ u != 1 }} {{ u == none }} {{ u == false }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ 'a' + none }}", "{{ [1] + 'a' }}",
        "{{ none + 'a' }}", "{{ 1 < 'a' }}", "{{ none >= 1 }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1.5 / 0 }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}",
        "{{ -'a' }}", "{{ {} < {} }}", "{{ [1] - [1] }}", "{{ u + 1 }}", "{{ 1 + u }}", "{{ 'x' + u }}", "{{ u < 1 }}", "{{ -u }}",
        "{{ '%s is %d, %.2f, 100%%, %r' % ('a', 3, 1.005, 'q') }} {{ '%s' % 1 }} {{ '%s' % none }}", "{{ '%s' % (1, 2) }}", "{{ '%s %s' % 1 }}",
    ]),
    # Names, attributes, items.
    ({"d": {"items": 1, "k": "v", "n": {"m": [10, 20]}, "0": "zero", "get": 5}, "l": ["a", "b", "c"], "s": "héllo", "none_": None}, [
        "{{ d.k }} {{ d['k'] }} {{ d.n.m[1] }} {{ d.n.m.0 }} {{ d['n']['m'][-1] }} {{ d['items'] }} {{ d['get'] }} {{ d[0] }}| {{ d['0'] }}",
        "{{ l[0] }} {{ l[-1] }} {{ l[5] }}| {{ l.0 }} {{ s[1] }} {{ s[-1] }} {{ s[9] }}| {{ l['x'] }}| {{ s.x }}| {{ none_.x }}|",
        "{{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[-2:] }} {{ l[5:] }} {{ l[2:0:-1] }} {{ l[:] }} {{ l[-9:9] }}",
        "{{ s[1:3] }} {{ s[::-1] }} {{ s[:-2] }} {{ s[3:1] }}| {{ s[-3::2] }} {{ (1, 2, 3)[1:] }} {{ l[none:2] }}",
        "{{ u }}| {{ u is defined }} {{ d.u is defined }} {{ d.items is defined }} {{ l.append is defined }}",
        "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{{ d.keys()|list }} {{ d.values()|list }} {{ d.get('k') }} {{ d.get('q') }} {{ d.get('q', 3) }}",
        "{{ u.x }}", "{{ d.u.x }}", "{{ d['u']['x'] }}", "{{ none_.x.y }}", "{{ l[7].x }}", "{{ s.foo.bar }}", "{{ u() }}", "{{ d.u() }}", "{{ d() }}",
        "{{ s() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('k') }}", "{{ u['x'] }}", "{{ l[::0] }}", "{{ l['a':] }}", "{{ s.upper.x is defined }}",
        "{{ u[1:] }}", "{{ d.n.m.index(20) }} {{ l.count('a') }} {{ d.copy().k }}",
    ]),
    # Statements.
    ({"rows": ROWS, "l": [1, 2, 3], "t": True}, [
        "{% if l %}a{% elif t %}b{% else %}c{% endif %}{% if not l %}a{% elif t %}b{% else %}c{% endif %}{% if 0 %}a{% else %}c{% endif %}",
        "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
        "{% for i in l %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }};{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.depth }} {% endfor %}",
        "{% for r in rows if r.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ r.n }}{{ loop.last }} {% else %}none{% endfor %}",
        "{% for r in [] %}x{% else %}none{% endfor %}{% for r in u %}x{% else %}none{% endfor %}",
        "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
        "{% for i in l %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        "{% for i in l %}{% break %}{% else %}e{% endfor %}{% for i in l %}{% continue %}{% else %}e{% endfor %}{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }} {% endfor %}",
        "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [(1,)] %}{% endfor %}",
        "{% for c in 'héy' %}{{ c }},{% endfor %}{% for k in {'a': 1, 'b': 2} %}{{ k }}{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}",
        "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}", "{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}{{ range(2, 4)|list }}{{ range(3)|length }}",
        "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
        "{% for i in l %}{% if loop.first %}{% set y = 5 %}{% endif %}{{ y }},{% endfor %}{{ y }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}",
        "{% set ns = namespace(n=0, s='') %}{% for i in l %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.q }}|{{ ns['n'] }}",
        "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.c = ns %}{{ ns.c.a }}", "{% set l.x = 1 %}", "{% set zz.x = 1 %}", 
        "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}", "{% set x | upper | trim %} ab {% endset %}{{ x }}|", "{% filter upper %}a{{ 'b' }}{% endfilter %}",
        "{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
        "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=9) }}{{ m(b=5, a=4) }}{{ m() }}",
        "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ m() }}{% set g = 2 %}{{ m() }}",
        "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a.b }}{% endmacro %}{{ m() }}",
        "{% macro wrap(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call wrap('b') %}in{{ 1 }}{% endcall %}",
        "{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) each([1, 2]) %}[{{ x }}]{% endcall %}",
        "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% generation %}a{% set g = 1 %}{{ g }}{% endgeneration %}b{{ g }}",
        "{% macro m() -%} x {%- endmacro %}[{{ m() }}] {{ m()|length }} {{ m() + 'y' }}", "{% set loop = 5 %}{{ loop }}{% for i in [1] %}{{ loop.index }}{% endfor %}{{ loop }}",
        "{% for m in rows[::-1] %}{{ m.n }}{% endfor %}", "{{ raise_exception('no ' ~ 'way') }}", "{% if t %}\n  {{ raise_exception('é') }}{% endif %}",
        "{{ strftime_now('%d %b %Y|%B %A %H:%M:%S %j %y %%') }}", "{% macro m(a, b=2, c=3) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(*l) }}{{ m(1, **{'c': 5}) }}{{ m(*[1], c=4) }}{{ dict({'x': 1}, **{'y': 2}) }}",
        "{{ none|map('upper')|list }}{{ none|selectattr('a')|list }}{{ 0|reject|list }}", "{{ 5|select|list }}", "{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }}",
        "{% set it = l|map('string') %}{% for i in it %}{{ i }}{% endfor %}|{% for i in it %}{{ i }}{% endfor %}",
        "{% if [] | select('equalto', 1) %}true{% endif %}", "{{ (l | select) | length }}", "{{ (l|map('string'))[0] is defined }}",
        "{% for i in range(100001) %}{% endfor %}", "{{ range(1, 2, 0) }}", "{% macro caller_less() %}{{ caller is defined }}{% endmacro %}{{ caller_less() }}",
        "{% set x = namespace(l=[]) %}{% for i in l %}{% set x.l = x.l + [i * 2] %}{% endfor %}{{ x.l }}", "{% if rows[0]['role'] == 'user' and rows[2].x is none %}y{% endif %}",
    ]),
    # Filters.
    ({"s": "  Hello World  ", "l": [3, 1, 2], "rows": ROWS, "d": {"b": 1, "A": 2, "c": 0}, "f": 2.5,
      "j": {"a": [1, 2.0, "é<&>'\"\n\u0001\u007f", None, True], "b": {}, "c": [], "d": {"x": {"y": []}}}}, [
        "{{ s|trim }}|{{ s|upper }}|{{ s|lower }}|{{ s|trim|capitalize }}|{{ 'x-y (z) [a'|title }}|{{ \"it's ok\"|title }}|{{ s|length }}|{{ s|trim|replace('l', 'L') }}|{{ 'aaa'|replace('a', 'b', 2) }}",
        "{{ 'xxhixx'|trim('x') }}|{{ 5|trim }}|{{ none|upper }}|{{ u|trim }}|{{ u|upper }}|{{ true|lower }}|{{ 'héß'|upper }}|{{ 'ÀÉ'|lower }}|{{ 'a'|replace('', '-') }}|{{ 12321|replace(2, 'x') }}",
        "{{ u|default('x') }} {{ ''|default('x') }}| {{ ''|default('x', true) }} {{ none|default('x') }} {{ none|d('x', boolean=true) }} {{ 0|default(1, true) }} {{ u|default }}|",
        "{{ l|first }} {{ l|last }} {{ []|first }}| {{ 'ab'|first }} {{ 'ab'|last }} {{ l|sort }} {{ l|sort(reverse=true) }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }}",
        "{{ l|join }} {{ l|join(', ') }} {{ rows|join('-', attribute='n') }} {{ [1, none, true, 'x']|join('|') }} {{ 'abc'|join('.') }} {{ u|join }}|",
        "{{ rows|map(attribute='role')|join(',') }} {{ rows|map(attribute='x', default='-')|list }} {{ l|map('string')|list }} {{ ['a', 'b']|map('upper')|join }} {{ ['aXa']|map('replace', 'X', 'y')|list }} {{ [[1, 2], [3]]|map('join', '+')|list }}",
        "{{ rows|selectattr('role', 'equalto', 'user')|list|length }} {{ rows|selectattr('x', 'defined')|list|length }} {{ rows|rejectattr('role', '==', 'user')|map(attribute='n')|list }} {{ rows|selectattr('x')|list }} {{ rows|rejectattr('x', 'undefined')|list|length }}",
        "{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select('gt', 1)|list }} {{ l|select('in', [1, 9])|list }} {{ [0, 1, '', 'a']|select|list }} {{ [0, 1]|reject|list }}",
        "{{ d|dictsort }} {{ d|dictsort(true) }} {{ d|dictsort(by='value') }} {{ d|dictsort(reverse=true) }} {{ d|items|list }} {{ u|items|list }} {{ d|list }} {{ d|length }} {{ 'hey'|list }}",
        "{{ [1, 2, 1, 'a', 'A', 'b']|unique|list }} {{ ['a', 'A']|unique(case_sensitive=true)|list }} {{ l|min }} {{ l|max }} {{ ['b', 'A']|min }} {{ l|sum }} {{ rows|sum(attribute='n') }} {{ rows|sum('n', 10) }} {{ []|max }}|{{ rows|max(attribute='n') }}",
        "{{ l|reverse|list }} {{ 'abc'|reverse }} {{ rows|sort(attribute='n')|map(attribute='n')|list }}",
        "{{ '42'|int }} {{ ' 42 '|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.9'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ 'ff'|int(0, 16) }} {{ true|int }} {{ none|int }} {{ '+5'|int }} {{ '-5'|int }}",
        "{{ '1.5'|float }} {{ 'x'|float }} {{ 'x'|float(2.5) }} {{ 3|float }} {{ '1e3'|float }} {{ -5|abs }} {{ -2.5|abs }} {{ 5|abs }}", "{{ 2.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(method='ceil') }} {{ 2.9|round(0, 'floor') }} {{ 3|round }} {{ 3.5|round|int }} {{ 1234.5678|round(1) }}",
        "{{ '<'|safe + '<' }} {{ '<' + '<'|safe }} {{ '<'|safe ~ '<' }} {{ '<'|e + '<'|safe }} {{ '<a>'|safe|upper + '<' }} {{ ('<'|safe)[0] + '<' }} {{ ('<,<'|safe).split(',')[1] + '<' }} {{ 2 * ('<'|safe) + '<' }}",
        "{{ ('<a>'|safe).replace('a', '<') }} {{ '<a>'|safe|replace('a', '<') + '<' }} {{ ','.join(['<'|safe]) + '<' }} {{ ('<'|safe).join(['<', 'b']) }} {{ '<'|safe|string + '<' }} {{ '<'|safe|tojson + '<' }} {{ '<'|safe|trim|length }} {{ ['<'|safe]|join + '<' }} {{ ('<{}'|safe).format('<') }} {{ '<'|safe == '<' }} {{ ('<'|safe)|default('') + '<' }}",
        "{{ 5|string }} {{ [1]|string }} {{ none|string }} {{ 'x'|string }} {{ u|string }}| {{ 1.0|string }} {{ true|string + 'x' }}", "{{ '<a>'|safe }} {{ '<a href=\"x\">\\'&'|e }} {{ '<'|escape }}",
        "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}|{{ 'a\n'|indent(first=true) }}|{{ ''|indent }}|{{ 'a\r\nb'|indent(1) }}",
        "{{ j|tojson }}", "{{ j|tojson(indent=2) }}", "{{ j|tojson(indent=4) }}", "{{ j|tojson(ensure_ascii=true) }}", "{{ j|tojson(sort_keys=true, indent=1) }}", "{{ j|tojson(separators=(',', ':')) }}", "{{ j|tojson(indent='--') }}", "{{ j|tojson(indent=0) }}",
        "{{ '🌲é'|tojson }} {{ '🌲é'|tojson(ensure_ascii=true) }} {{ none|tojson }} {{ 1.5|tojson }} {{ 1e100|tojson }} {{ true|tojson }} {{ (1, 2)|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ '/'|tojson }}",
        "{{ u|tojson }}", "{{ l|map('string')|tojson }}", "{{ none|length }}", "{{ 5|length }}", "{{ u|length }}", "{{ 5|list }}", "{{ 5|first }}", "{{ l|items|list }}", "{{ 5|join }}", "{{ 'a'|nosuch }}", "{{ l|map('nosuch')|list }}", "{{ l|select('nosuch')|list }}",
        "{{ u|int }}", "{{ ['a', 1]|sort }}", "{{ 'x'|dictsort }}", "{{ -2|abs }}", "{{ -'x'|abs }}", "{{ 'a b  c'|wordcount }} {{ '%s-%s'|format('a', 1) }} {{ l|count }} {{ d|attr('b') }}|",
        "{{ rows|map(attribute='role')|unique|list }} {{ [{'a': {'b': [7]}}]|map(attribute='a.b.0')|list }} {{ (l|sort)[0] }} {{ l|sort|join('') ~ 'x' }} {{ 'a' in l|map('string') }} {{ l|length > 2 }} {{ 'x' if l|length == 3 else 'y' }}",
    ]),
    # Tests.
    ({"s": "a", "l": [1], "d": {"a": 1}, "n": None, "i": 3, "f": 1.5, "b": True}, [
        "{% for v in [s, l, d, n, i, f, b, u, (1,)] %}{{ v is string }}{{ v is mapping }}{{ v is iterable }}{{ v is sequence }}{{ v is number }}{{ v is integer }}{{ v is float }}{{ v is boolean }}{{ v is none }}{{ v is true }}{{ v is false }}{{ v is defined }}{{ v is undefined }} {% endfor %}",
        "{{ i is odd }} {{ i is even }} {{ i is divisibleby 3 }} {{ i is divisibleby(2) }} {{ i is eq 3 }} {{ i is equalto(4) }} {{ i is ne 3 }} {{ i is gt 2 }} {{ i is lt 2 }} {{ i is ge 3 }} {{ i is le 2 }} {{ i is in [3] }} {{ i is not in [3] }} {{ i is sameas 3 }}",
        "{{ s is not string }} {{ not s is string }} {{ s is string and l is iterable }} {{ s is string or u }} {{ n is sameas none }} {{ 'AB' is upper }} {{ 'ab' is lower }} {{ range is callable }} {{ s is callable }} {{ s.upper is callable }} {{ 'trim' is filter }} {{ 'odd' is test }}",
        "{{ l|map('string') is iterable }} {{ l|map('string') is sequence }} {{ d.items() is iterable }} {{ namespace() is mapping }} {{ d is string or d is mapping }} {{ 'x' if d.q is defined and d.q else 'y' }}",
        "{{ i is nosuch }}", "{{ i is divisibleby 0 }}", "{{ 'a' is odd }}", "{{ u is eq 1 }}", "{{ i is defined is true }}",
    ]),
    # Methods of str.
    ({"s": " a,b,,c ", "p": "<think>x</think>answer", "e": "Grüße  aus\u3000der\u00a0森\n"}, [
        "{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xyaxy'.strip('yx') }}|{{ 'xya'.lstrip('x') }}|{{ 'ayx'.rstrip('xy') }}|{{ '\u3000é森é'.strip('é\u3000') }}|{{ e.strip() }}|{{ '\n\nx\n'.strip('\n') }}",
        "{{ p.split('</think>') }} {{ p.split('</think>')[-1].lstrip('\\n') }} {{ p.split('q') }} {{ s.split(',') }} {{ s.split(',', 1) }} {{ s.rsplit(',', 1) }} {{ s.rsplit(',') }} {{ s.split(sep=',', maxsplit=2) }}",
        "{{ e.split() }} {{ '  a b  c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b c '.rsplit(none, 1) }} {{ 'a b c'.rsplit() }} {{ 'aXbXc'.partition('X') }} {{ 'aXbXc'.rpartition('X') }} {{ 'a'.partition('X') }} {{ 'a'.rpartition('X') }}",
        "{{ p.startswith('<think>') }} {{ p.endswith('x') }} {{ p.startswith(('a', '<')) }} {{ p.startswith('think', 1) }} {{ p.endswith('r', 0, -1) }} {{ ''.startswith('') }}",
        "{{ p.replace('x', 'yy') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'aaa'.replace('aa', 'b') }} {{ 'é'.replace('é', 'e') }}",
        "{{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'aBc dE'.title() }} {{ \"they're\".title() }} {{ 'aBc'.capitalize() }} {{ 'STRASSE straße'.upper() }}",
        "{{ p.find('x') }} {{ p.find('q') }} {{ 'ééx'.find('x') }} {{ 'abcabc'.rfind('b') }} {{ 'abc'.index('c') }} {{ 'aXa'.count('a') }} {{ 'aaa'.count('aa') }} {{ 'abc'.find('c', 1) }} {{ 'abcabc'.find('a', -3) }} {{ 'abc'.find('') }} {{ 'aé'.count('') }}",
        "{{ ','.join(['a', 'b']) }} {{ 'a\nb\r\nc\n\nd'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'aé'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' \t'.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ '1'.isupper() }}",
        "{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc'.removeprefix('x') }} {{ 'a'.ljust(3) }}| {{ 'a'.rjust(3, '.') }} {{ 'ab'.center(5, '*') }} {{ 'a'.center(4, '*') }} {{ '{} {} {{}}'.format(1, 'a') }} {{ '{0}{1}{0}'.format('a', 'b') }} {{ '{x}'.format(x=1) }} {{ '{:.2f}'.format(1.239) }}",
        "{{ 'a'.nosuch() }}", "{{ 'a'.split('') }}", "{{ 'a'.startswith(1) }}", "{{ ','.join([1]) }}", "{{ 'a'.index('x') }}", "{{ 'a'.strip(1) }}", "{{ 'abc'[1:].upper()[0] }}", "{{ ('a' ~ 1).upper() }}", "{{ 'a'.upper().lower().strip() }}",
    ]),
    # Syntax that ends at once.
    ({}, [
        "{{ }}", "{{ 1", "{% if %}x{% endif %}", "{% if 1 %}x", "{% endif %}", "{% for x in %}{% endfor %}", "{% for in x %}{% endfor %}", "{% foo %}", "{% %}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ {1} }}", "{{ a. }}", "{{ a| }}", "{{ a is }}",
        "{# open", "{% raw %}x", "{{ 'a }}", "{% set = 1 %}", "{% set 1 = 1 %}", "{% set x = %}", "{% macro %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{% break %}", "{{ 1 2 }}", "{{ a b }}", "{% if 1 %}{% else %}{% else %}{% endif %}",
        "{% if 1 %}{% endfor %}", "{{ a ? b }}", "{{ a; }}", "{{ ) }}", "{% call 1 %}{% endcall %}", "{{ 1 is string is number }}", "{% set true = 1 %}", "{% for true in [] %}{% endfor %}", "{% macro m() %}{% break %}{% endmacro %}", "{{ $ }}",
    ]),
]


class FixedNow(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def render(template, variables):
    try:
        return {"text": chat_template_utils._compile_jinja_template(template).render(**variables)}
    except jinja2.TemplateSyntaxError as e:
        return {"error": None if type(e) is jinja2.TemplateSyntaxError else str(e)}
    except SyntaxError:  # of the Python that Jinja makes: `break` outside of a loop
        return {"error": None}
    except Exception as e:
        return {"error": str(e)}


def main():
    chat_template_utils.datetime = FixedNow
    cases = []
    for variables, templates in GROUPS:
        for template in templates:
            case = {"template": template, **({"variables": variables} if variables else {})}
            cases.append(case | render(template, variables))
    with open(HERE / "cases.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
