//! Opens separate files with debug information for files of recorded processes, and gives them to the parser.

use std::os::fd::OwnedFd;

use super::{FileId, FileOwner, OpenRequest, ParseRequest, TargetFiles, opener};

impl TargetFiles {
    /// Lets the parser read a file and its debug information.
    pub(super) fn load_with_debug(&mut self, id: FileId) -> Result<(), String> {
        if self.held.contains(&id) && !self.file(id).failed {
            return self.load(id);
        }
        self.load(id)?;
        if self.file(id).debug.is_none() {
            let found = self.find_debug(id);
            self.file_mut(id).debug = Some(found);
        }
        let debug = self.file(id).debug.iter().flatten().next().and_then(|fd| fd.try_clone().ok());
        if let Some(debug) = debug {
            let belongs: bool = self.ask_with(id, &ParseRequest::LoadDebug { file: id.0 }, Some(&debug))?;
            if !belongs {
                self.file_mut(id).debug = Some(None);
            }
        }
        Ok(())
    }

    /// Opens the file with a file's debug information: by its build id or its link, below the system's
    /// directory of debug information, then below the root of its process.
    pub(super) fn find_debug(&mut self, id: FileId) -> Option<OwnedFd> {
        let FileOwner { pid, uid } = self.owner(id);
        let (folder, name) = self.file(id).path.rsplit_once('/')?;
        let (folder, name) = (folder.to_owned(), name.to_owned());
        let facts = self.file(id).facts.clone()?;
        let mut relative = Vec::new();
        if let Some((first, rest)) = facts.build_id.as_deref().and_then(|id| id.split_at_checked(2)) {
            relative.push(format!(".build-id/{first}/{rest}.debug"));
        }
        let link = facts.debug_link.filter(|link| *link != name);
        relative.extend(link.iter().map(|link| format!("{}/{link}", folder.trim_start_matches('/'))));
        let system = relative.iter().map(|path| (None, format!("{}{path}", opener::SYSTEM_DEBUG)));
        let process = Some((pid, uid));
        let own = link.iter().flat_map(|link| {
            [format!("{folder}/{link}"), format!("{folder}/.debug/{link}")].map(|path| (process, path))
        });
        let own_debug = relative.iter().map(|path| (process, format!("{}{path}", opener::SYSTEM_DEBUG)));
        let candidates: Vec<_> = system.chain(own).chain(own_debug).collect();
        candidates.into_iter().filter(|(process, path)| process.is_some() || !path.contains("/../")).find_map(
            |(process, path)| {
                self.open_requested(uid, &OpenRequest::Debug { process, path }).ok().map(|(file, _)| file)
            },
        )
    }
}
