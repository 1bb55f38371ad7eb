//! Leaves out requests that last longer than the recording, such as streams.
//!
//! The recording has only a part of their time, and nothing of those that were open before it began. Streams of equal length
//! also end in the order of their arrival, so they look like a queue of one replica that executes one request at a time.

use super::{RecordedAttempt, RecordedRequest, Recording, UNKNOWN};

impl Recording {
    /// Leaves out requests, and calls of a fan-out together with the other calls of their request.
    pub(super) fn leave_out_long_requests(&mut self) {
        let span = self.span();
        let is_long = |(request, attempts): (&RecordedRequest, &[RecordedAttempt])| {
            let lasted = attempts.iter().map(|attempt| attempt.ended().since(request.arrived));
            lasted.chain(request.latency).any(|lasted| lasted > span)
        };
        let are_long: Vec<bool> = self.with_attempts().map(is_long).collect();
        let of_fan_out = self.fan_out.iter().flat_map(|fan_out| &fan_out.requests);
        let mut are_long_callers: Vec<bool> =
            of_fan_out.map(|request| request.latency.is_some_and(|it| it > span)).collect();
        for (call, is_long) in self.requests.iter().zip(&are_long) {
            if let Some(is_long_caller) = are_long_callers.get_mut(call.caller as usize) {
                *is_long_caller |= is_long;
            }
        }
        let is_left_out = |(request, is_long): (&RecordedRequest, &bool)| {
            *is_long || are_long_callers.get(request.caller as usize).is_some_and(|it| *it)
        };
        let left_out: Vec<bool> = self.requests.iter().zip(&are_long).map(is_left_out).collect();
        if !left_out.contains(&true) && !are_long_callers.contains(&true) {
            return;
        }
        let mut kept_callers = 0;
        let caller_numbers: Vec<u32> = are_long_callers
            .iter()
            .map(|is_long| {
                kept_callers += u32::from(!is_long);
                kept_callers - u32::from(!is_long)
            })
            .collect();
        let kept = self.with_attempts().zip(&left_out).filter(|(_, left_out)| !**left_out);
        let rows = kept.map(|((request, attempts), _)| {
            let caller = caller_numbers.get(request.caller as usize).copied().unwrap_or(UNKNOWN);
            (RecordedRequest { caller, ..*request }, attempts.to_vec())
        });
        let rows = rows.collect();
        let mut is_long_caller = are_long_callers.iter();
        if let Some(fan_out) = &mut self.fan_out {
            fan_out.requests.retain(|_| !is_long_caller.next().is_some_and(|it| *it));
        }
        // Of a fan-out, its requests and not their calls.
        let of_requests = if self.fan_out.is_some() { &are_long_callers } else { &left_out };
        self.long_requests += of_requests.iter().filter(|left_out| **left_out).count() as u64;
        self.requests.clear();
        self.attempts.clear();
        self.fill(rows);
    }
}

#[cfg(test)]
mod tests;
