//! Enums of command-line values: one list of words for parsing, printing and help.

/// Defines an enum with a word for each value, and the kind of value for errors. One of them is the default.
#[macro_export]
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($values:tt)+ }) => {
        trace_format::named_enum! {
            $(#[$doc])*
            #[derive(Default)]
            $name, $what, $crate::AnalyzeError { $($values)+ }
        }
    };
}
