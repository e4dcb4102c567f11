; Captures: def.class and def.function a symbol, name and params of it; ref.import what a file imports;
; ref.call a bare name that is called; ref.member a member that is called on @object; comment what may stand before a symbol.
(class_declaration name: (identifier) @name) @def.class
(function_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(generator_function_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(method_definition name: [(property_identifier) (private_property_identifier)] @name parameters: (formal_parameters) @params) @def.function
(variable_declarator name: (identifier) @name value: (arrow_function parameters: (formal_parameters) @params)) @def.function
(variable_declarator name: (identifier) @name value: (arrow_function parameter: (identifier) @params)) @def.function
(variable_declarator name: (identifier) @name value: (function_expression parameters: (formal_parameters) @params)) @def.function
(variable_declarator name: (identifier) @name value: (class)) @def.class

(import_statement source: (string (string_fragment) @ref.import))
(export_statement source: (string (string_fragment) @ref.import))
(call_expression function: (import) arguments: (arguments . (string (string_fragment) @ref.import)))
((call_expression function: (identifier) @_require arguments: (arguments . (string (string_fragment) @ref.import))) (#eq? @_require "require"))

(call_expression function: (identifier) @ref.call)
(new_expression constructor: (identifier) @ref.call)
(call_expression function: (member_expression object: [(this) (identifier)] @object property: [(property_identifier) (private_property_identifier)] @ref.member))

(comment) @comment
