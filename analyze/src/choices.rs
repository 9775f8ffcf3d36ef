//! Words of the command line and their values, each in one table for parsing, printing and help.

/// An enum of choices with their words. Its user imports `fmt`, `FromStr` and `AnalyzeError`.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// Every choice.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word for it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = AnalyzeError;

            fn from_str(word: &str) -> Result<Self, AnalyzeError> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(AnalyzeError::UnknownWord {
                        what: $what,
                        word: word.to_owned(),
                        known: [$($word),+].join(", "),
                    }),
                }
            }
        }
    };
}

pub(crate) use choices;
