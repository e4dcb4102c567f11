; The captures are those of javascript.scm. What a function returns may be a pointer, or a pointer to one.
(function_definition declarator: [
  (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params))
  (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params)))
]) @def.function
(declaration declarator: [
  (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params))
  (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name parameters: (parameter_list) @params)))
]) @def.function
(preproc_function_def name: (identifier) @name parameters: (preproc_params) @params) @def.function
(struct_specifier name: (type_identifier) @name body: (_)) @def.class
(union_specifier name: (type_identifier) @name body: (_)) @def.class
(enum_specifier name: (type_identifier) @name body: (_)) @def.class
(type_definition declarator: (type_identifier) @name) @def.class

(preproc_include path: [(string_literal) (system_lib_string)] @ref.import)

(call_expression function: (identifier) @ref.call)

(comment) @comment
