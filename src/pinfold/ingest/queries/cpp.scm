; The captures are those of javascript.scm; scope gives the names in it a first part.
; What a function returns may be a pointer, a pointer to one, or a reference.
(function_definition declarator: [
  (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier) (destructor_name) (operator_name)] @name parameters: (_) @params)
  (pointer_declarator declarator: (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier) (operator_name)] @name parameters: (_) @params))
  (pointer_declarator declarator: (pointer_declarator declarator:
    (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier)] @name parameters: (_) @params)))
  (reference_declarator (function_declarator declarator: [(identifier) (field_identifier) (qualified_identifier) (operator_name)] @name parameters: (_) @params))
]) @def.function
(declaration declarator: [
  (function_declarator declarator: [(identifier) (qualified_identifier) (destructor_name) (operator_name)] @name parameters: (_) @params)
  (pointer_declarator declarator: (function_declarator declarator: [(identifier) (qualified_identifier)] @name parameters: (_) @params))
  (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name parameters: (_) @params)))
  (reference_declarator (function_declarator declarator: [(identifier) (qualified_identifier) (operator_name)] @name parameters: (_) @params))
]) @def.function
(field_declaration declarator: [
  (function_declarator declarator: [(field_identifier) (operator_name)] @name parameters: (_) @params)
  (pointer_declarator declarator: (function_declarator declarator: (field_identifier) @name parameters: (_) @params))
  (reference_declarator (function_declarator declarator: [(field_identifier) (operator_name)] @name parameters: (_) @params))
]) @def.function
(preproc_function_def name: (identifier) @name parameters: (preproc_params) @params) @def.function
(class_specifier name: [(type_identifier) (template_type) (qualified_identifier)] @name body: (_)) @def.class
(struct_specifier name: [(type_identifier) (template_type) (qualified_identifier)] @name body: (_)) @def.class
(union_specifier name: (type_identifier) @name body: (_)) @def.class
(enum_specifier name: (type_identifier) @name body: (_)) @def.class
(type_definition declarator: (type_identifier) @name) @def.class
(alias_declaration name: (type_identifier) @name) @def.class
(concept_definition name: (identifier) @name) @def.class
(namespace_definition name: (_) @name body: (_)) @scope

(preproc_include path: [(string_literal) (system_lib_string)] @ref.import)

(call_expression function: (identifier) @ref.call)
(call_expression function: (field_expression argument: (this) @object field: (field_identifier) @ref.member))
(call_expression function: (qualified_identifier scope: (namespace_identifier) @object name: (identifier) @ref.member))
(new_expression type: (type_identifier) @ref.call)

(comment) @comment
