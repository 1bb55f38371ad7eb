//! Reasons: enumerations whose variants have a constant name and a text for people.

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

        curtail_units::labels!($type { $($variant => $name,)* });

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

pub(crate) use reasons;
