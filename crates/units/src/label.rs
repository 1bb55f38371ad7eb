//! Enumerations whose variants have constant names: metric labels, span attributes, words in files.

/// An enumeration whose variants have constant names and indices, so that a counter by name is an array.
pub trait Label: 'static {
    /// The names of the variants, by index.
    const NAMES: &'static [&'static str];

    /// The index of the variant.
    fn index(&self) -> usize;
}

/// Names the variants of an enumeration, in their order.
#[macro_export]
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
