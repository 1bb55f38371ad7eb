//! The constant names of enumerations: metric labels, trace attributes, and texts in the journal.

/// An enumeration whose variants have constant names and indices, so that a counter by name is an array.
pub trait Label: 'static {
    /// The names of the variants, by index.
    const NAMES: &'static [&'static str];

    /// The index of the variant.
    fn index(&self) -> usize;
}

/// Names the variants of an enumeration, in their order.
macro_rules! labels {
    ($type:ident { $($variant:ident => $name:literal,)* }) => {
        impl $crate::Label for $type {
            const NAMES: &'static [&'static str] = &[$($name),*];

            fn index(&self) -> usize {
                enum Index { $($variant),* }
                match self { $(Self::$variant { .. } => Index::$variant as usize,)* }
            }
        }

        impl $type {
            /// The constant name: a metric label and a trace attribute.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name,)* }
            }
        }
    };
}

/// Whether a variant has any fields.
pub(crate) const fn has_any(fields: &[&str]) -> bool {
    !fields.is_empty()
}

/// Defines the reasons of a machine: each with its fields, its name and, in one line, its text for people.
macro_rules! reasons {
    ($(#[$attribute:meta])* $type:ident {
        $(
            $(#[$doc:meta])*
            $variant:ident $({ $($field:ident: $of:ty),* })? =>
                $name:literal, $text:literal $(, $value:expr)*;
        )*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "the text of a variant explains its fields")]
        pub enum $type {
            $(
                #[doc = concat!("`", $text, "`")]
                #[doc = ""]
                $(#[$doc])*
                $variant $({ $($field: $of),* })?,
            )*
        }

        $crate::label::labels!($type { $($variant => $name,)* });

        impl $type {
            /// Whether it says more than its name: there are numbers that were compared, or a failure.
            #[must_use]
            pub const fn has_detail(&self) -> bool {
                match self {
                    $(Self::$variant { .. } => $crate::label::has_any(&[$($(stringify!($field)),*)?]),)*
                }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),* })? => write!(f, $text $(, $value)*),)*
                }
            }
        }
    };
}

pub(crate) use {labels, reasons};
