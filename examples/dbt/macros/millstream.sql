{# dbt builds PostgreSQL's relations under another name and renames them. In Millstream a view runs: it is replaced in
   place and continues with what it keeps. A table is what its query gives now. #}

{% materialization view, adapter='postgres' %}
  {%- set target = this.incorporate(type='view') -%}
  {%- set old = load_cached_relation(this) -%}
  {{ run_hooks(pre_hooks) }}
  {% if old is not none and old.type != 'view' %}{{ adapter.drop_relation(old) }}{% endif %}
  {% call statement('main') %}create or replace view {{ target }} as {{ sql }}{% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}

{% materialization table, adapter='postgres' %}
  {%- set target = this.incorporate(type='table') -%}
  {%- set old = load_cached_relation(this) -%}
  {{ run_hooks(pre_hooks) }}
  {% if old is not none %}{{ adapter.drop_relation(old) }}{% endif %}
  {% call statement('main') %}create table {{ target }} as {{ sql }}{% endcall %}
  {{ run_hooks(post_hooks) }}
  {{ return({'relations': [target]}) }}
{% endmaterialization %}
