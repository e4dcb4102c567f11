; The captures are those of javascript.scm; owner is the type a method is of, self what it calls its receiver.
(function_declaration name: (identifier) @name parameters: (parameter_list) @params) @def.function
(method_declaration
  receiver: (parameter_list (parameter_declaration name: (identifier)? @self
    type: [(type_identifier) @owner
           (generic_type type: (type_identifier) @owner)
           (pointer_type (type_identifier) @owner)
           (pointer_type (generic_type type: (type_identifier) @owner))]))
  name: (field_identifier) @name parameters: (parameter_list) @params) @def.function
(type_spec name: (type_identifier) @name) @def.class
(type_alias name: (type_identifier) @name) @def.class

(import_spec path: (interpreted_string_literal (interpreted_string_literal_content) @ref.import))

(call_expression function: (identifier) @ref.call)
(call_expression function: (selector_expression operand: (identifier) @object field: (field_identifier) @ref.member))
(composite_literal type: (type_identifier) @ref.call)

(comment) @comment
