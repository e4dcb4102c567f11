; The captures are those of javascript.scm.
(class_declaration name: (type_identifier) @name) @def.class
(abstract_class_declaration name: (type_identifier) @name) @def.class
(interface_declaration name: (type_identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(type_alias_declaration name: (type_identifier) @name) @def.class
(function_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(generator_function_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(function_signature name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(method_definition name: [(property_identifier) (private_property_identifier)] @name parameters: (formal_parameters) @params) @def.function
(abstract_method_signature name: (property_identifier) @name parameters: (formal_parameters) @params) @def.function
(method_signature name: (property_identifier) @name parameters: (formal_parameters) @params) @def.function
(variable_declarator name: (identifier) @name value: (arrow_function parameters: (formal_parameters) @params)) @def.function
(variable_declarator name: (identifier) @name value: (arrow_function parameter: (identifier) @params)) @def.function
(variable_declarator name: (identifier) @name value: (function_expression parameters: (formal_parameters) @params)) @def.function
(internal_module name: (identifier) @name) @scope

(import_statement source: (string (string_fragment) @ref.import))
(export_statement source: (string (string_fragment) @ref.import))
(import_require_clause source: (string (string_fragment) @ref.import))
(call_expression function: (import) arguments: (arguments . (string (string_fragment) @ref.import)))
((call_expression function: (identifier) @_require arguments: (arguments . (string (string_fragment) @ref.import))) (#eq? @_require "require"))

(call_expression function: (identifier) @ref.call)
(new_expression constructor: (identifier) @ref.call)
(call_expression function: (member_expression object: [(this) (identifier)] @object property: [(property_identifier) (private_property_identifier)] @ref.member))

(comment) @comment
