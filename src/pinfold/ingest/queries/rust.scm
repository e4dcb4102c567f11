; The captures are those of javascript.scm; scope gives the names in it a first part; ref.module is `mod x;`.
(function_item name: (identifier) @name parameters: (parameters) @params) @def.function
(function_signature_item name: (identifier) @name parameters: (parameters) @params) @def.function
(macro_definition name: (identifier) @name) @def.function
(struct_item name: (type_identifier) @name) @def.class
(enum_item name: (type_identifier) @name) @def.class
(union_item name: (type_identifier) @name) @def.class
(trait_item name: (type_identifier) @name) @def.class
(type_item name: (type_identifier) @name) @def.class
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name) (scoped_type_identifier name: (type_identifier) @name)]) @scope
(mod_item name: (identifier) @name body: (declaration_list)) @scope

(mod_item name: (identifier) @ref.module !body)
(use_declaration argument: (_) @ref.import)

(call_expression function: (identifier) @ref.call)
(call_expression function: (field_expression value: (self) @object field: (field_identifier) @ref.member))
(call_expression function: (scoped_identifier path: (identifier) @object name: (identifier) @ref.member))
(macro_invocation macro: (identifier) @ref.call)
(struct_expression name: (type_identifier) @ref.call)

[(line_comment) (block_comment)] @comment
