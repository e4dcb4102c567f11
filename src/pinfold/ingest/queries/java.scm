; The captures are those of javascript.scm.
(class_declaration name: (identifier) @name) @def.class
(interface_declaration name: (identifier) @name) @def.class
(enum_declaration name: (identifier) @name) @def.class
(record_declaration name: (identifier) @name) @def.class
(annotation_type_declaration name: (identifier) @name) @def.class
(method_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function
(constructor_declaration name: (identifier) @name parameters: (formal_parameters) @params) @def.function

(import_declaration (scoped_identifier) @ref.import)

(method_invocation !object name: (identifier) @ref.call)
(method_invocation object: [(this) (identifier)] @object name: (identifier) @ref.member)
(object_creation_expression type: (type_identifier) @ref.call)

[(line_comment) (block_comment)] @comment
