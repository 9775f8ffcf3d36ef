//! The klock commands that documentation, help texts and messages show, as a reader would type them.

#![allow(dead_code, reason = "each test program uses a part of it")]

/// Returns the commands of a Markdown text: lines of code blocks, and code in sentences.
pub(crate) fn in_markdown(text: &str) -> Vec<String> {
    let mut commands = in_quotes(text);
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let line = line.trim_start_matches("$ ").trim_start_matches("sudo ");
        if is_code && line.starts_with("klock ") {
            commands.extend(typed(line));
        }
    }
    commands
}

/// Returns the commands in backquotes, of messages in the source, too.
pub(crate) fn in_quotes(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let quoted = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let quoted =
        quoted.map(|code| code.trim_start_matches("sudo ")).filter(|code| code.starts_with("klock "));
    quoted.flat_map(typed).collect()
}

/// Returns the commands of the examples of a help text.
pub(crate) fn in_help(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.map(|line| line.trim_start_matches("sudo ")).filter(|line| line.starts_with("klock "));
    // An explanation is set apart.
    lines.flat_map(|line| typed(line.split("   ").next().unwrap_or(line))).collect()
}

/// Returns the commands of a line, with words for what a reader puts in, and without what follows the
/// command.
fn typed(line: &str) -> Vec<String> {
    const PUT_IN: [(&str, &str); 22] = [
        ("COMMAND --help", "report --help"),
        (" ...", " ./prog"),
        ("{table}", "report"),
        ("{ours}", "site"),
        ("--locks {}", "--locks pthread"),
        ("--lock {}", "--lock cache_lock"),
        ("TABLE", "report"),
        ("FORMAT", "csv"),
        ("=TASKS", "=all"),
        ("{trace}", ""),
        ("{lock}", "cache_lock"),
        ("{source}", "pthread"),
        ("{word}", "./prog"),
        ("{}", ""),
        ("COMMAND", "./prog"),
        ("PID", "1234"),
        ("--by KEY", "--by lock"),
        ("--sample N", "--sample 10"),
        ("TRACE", "trace.parquet"),
        ("FILE", "file"),
        ("BASE", "base-1.parquet"),
        ("NEW", "new-1.parquet"),
    ];
    let line = line.split(" #").next().unwrap_or(line);
    let line = PUT_IN.iter().fold(line.to_owned(), |line, (word, with)| line.replace(word, with));
    let line = line.replace("...", "");
    let commands = line.split(" && ").map(|command| command.replace(['[', ']'], "").trim().to_owned());
    commands.filter(|command| command.starts_with("klock ") && !command.starts_with("klock = ")).collect()
}

/// Splits a command at its blanks, as a shell does.
pub(crate) fn words(command: &str) -> Vec<String> {
    let parts = command.split('\'').enumerate();
    let joined: String =
        parts.map(|(at, part)| if at % 2 == 1 { part.replace(' ', "\0") } else { part.to_owned() }).collect();
    joined.split_whitespace().map(|word| word.replace('\0', " ")).collect()
}
