//! The set of open calls: one bit for each call, and no allocation for up to 64 calls.

use super::CallId;
use alloc::boxed::Box;
use alloc::vec;

const WORD_BITS: u32 = u64::BITS;

#[derive(Clone, Debug)]
pub(super) struct OpenCalls {
    /// Calls 0 to 63.
    first: u64,
    /// The calls from 64 on, 64 in each word.
    others: Box<[u64]>,
    count: u32,
    /// The first word that may have calls. Only [`Self::pop`] raises this index, after the last insertion.
    pop_from: u32,
}

impl OpenCalls {
    pub(super) fn new(calls: u32) -> Self {
        let words = calls.div_ceil(WORD_BITS).saturating_sub(1);
        Self { first: 0, others: vec![0; words as usize].into(), count: 0, pop_from: 0 }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn insert(&mut self, CallId(call): CallId) {
        let word = self.word_mut(call / WORD_BITS).expect("the gather starts its own calls only");
        *word |= 1 << (call % WORD_BITS);
        self.count += 1;
    }

    /// Removes a call; false if it is not open.
    pub(super) fn remove(&mut self, CallId(call): CallId) -> bool {
        let bit = 1 << (call % WORD_BITS);
        let Some(word) = self.word_mut(call / WORD_BITS).filter(|word| **word & bit != 0) else {
            return false;
        };
        *word &= !bit;
        self.count -= 1;
        true
    }

    pub(super) fn pop(&mut self) -> Option<CallId> {
        while self.count > 0 {
            let index = self.pop_from;
            let word = self.word_mut(index)?;
            if *word != 0 {
                let bit = word.trailing_zeros();
                *word &= *word - 1;
                self.count -= 1;
                return Some(CallId(index * WORD_BITS + bit));
            }
            self.pop_from += 1;
        }
        None
    }

    fn word_mut(&mut self, index: u32) -> Option<&mut u64> {
        match index {
            0 => Some(&mut self.first),
            index => self.others.get_mut(index as usize - 1),
        }
    }
}
