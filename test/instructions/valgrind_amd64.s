#include "textflag.h"

// func clientRequest(args *[6]uint64)
//
// The instructions do nothing, unless valgrind reads them: valgrind.h has them.
TEXT ·clientRequest(SB), NOSPLIT, $0-8
	MOVQ args+0(FP), AX
	MOVQ $0, DX
	ROLQ $3, DI
	ROLQ $13, DI
	ROLQ $61, DI
	ROLQ $51, DI
	BYTE $0x48; BYTE $0x87; BYTE $0xdb // XCHGQ BX, BX
	RET
