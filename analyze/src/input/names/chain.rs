//! Chains: the functions of a stack from the acquisition site outwards, as keys of rows.
//!
//! Stacks enter, a number per distinct chain leaves. Calls from different lines of the same caller make one chain; `--by site` tells
//! lines apart.

use rustc_hash::FxHashMap;
use trace_format::{Stack, StackId};

use super::{frames::shown_frames, point::function};

/// The chains of all stacks of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    /// The first chain is for missing and empty stacks.
    all: Vec<Vec<String>>,
    /// By stack id.
    kernel: Vec<u32>,
    /// By stack id.
    user: Vec<u32>,
}

impl Chains {
    /// Returns the chains of the innermost `depth` functions.
    pub(crate) fn of(stacks: &[Stack], depth: usize) -> Self {
        let mut chains = Self { all: vec![Vec::new()], ..Self::default() };
        let mut known = FxHashMap::from_iter([(Vec::new(), 0)]);
        let mut intern = |stack: &Stack, kernel: bool| {
            let chain: Vec<String> = shown_frames(&stack.frames, kernel).take(depth).map(function).collect();
            *known.entry(chain).or_insert_with_key(|chain| {
                chains.all.push(chain.clone());
                u32::try_from(chains.all.len() - 1).unwrap_or(0)
            })
        };
        for stack in stacks {
            chains.kernel.push(intern(stack, true));
            chains.user.push(intern(stack, false));
        }
        chains
    }

    /// Returns the number of the chain; 0 if unknown.
    pub(crate) fn number(&self, stack: Option<StackId>, kernel: bool) -> u32 {
        let by_stack = if kernel { &self.kernel } else { &self.user };
        let at = stack.and_then(|stack| usize::try_from(stack.0).ok());
        at.and_then(|at| by_stack.get(at)).copied().unwrap_or(0)
    }

    pub(crate) fn chain(&self, number: u32) -> &[String] {
        self.all.get(number as usize).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use trace_format::Frame;

    use super::*;

    fn stack(id: i32, symbols: &[&str]) -> Stack {
        let frame = |symbol: &&str| Frame { symbol: Some((*symbol).to_owned()), ..Frame::default() };
        Stack { id: StackId(id), frames: symbols.iter().map(frame).collect() }
    }

    #[test]
    fn stacks_that_differ_beyond_the_depth_are_one_chain() {
        let stacks = [
            stack(0, &["pthread_mutex_lock", "put", "store", "main"]),
            stack(1, &["put", "store", "worker"]),
            stack(2, &["put", "evict", "worker"]),
        ];
        let numbers = |depth| {
            let chains = Chains::of(&stacks, depth);
            [0, 1, 2].map(|id| chains.number(Some(StackId(id)), false))
        };
        assert_eq!(numbers(1), [1, 1, 1]);
        assert_eq!(numbers(2), [1, 1, 2]);
        assert_eq!(numbers(usize::MAX), [1, 2, 3]);
        assert_eq!(Chains::of(&stacks, 2).chain(1), ["put", "store"]);
        assert_eq!(Chains::of(&stacks, 2).number(Some(StackId(9)), false), 0);
    }
}
