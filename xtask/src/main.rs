//! The program behind `cargo xtask`; everything is in the library, which the tests use too.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
